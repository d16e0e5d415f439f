"""Container runtimes behind one interface shaped like CRI."""
