/* Named pipes of the machine, which are Unix sockets, for the Windows programs of a container. */

/* Starts a process that serves the pipe permanently, and returns when the pipe exists. `loader` is Wine's, which runs
 * pipeserve next to the program itself. */
void serve_pipe(char *loader, char *pipe, char *socket_path);
