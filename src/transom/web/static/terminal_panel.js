// The Terminal tab: exec and attach for containers, login for nodes, over a WebSocket with the channels of Kubernetes.
import { byId, el, fill } from "./dom.js";
import { TerminalView } from "./terminal.js";

const STDIN = 0;
const STDOUT = 1;
const STDERR = 2;
const ERROR = 3;
const RESIZE = 4;
const PROTOCOLS = ["v5.channel.k8s.io", "v4.channel.k8s.io"];

export function startTerminal(base, data) {
  const pod = data.plural === "pods";
  const run = byId("terminal-run");
  const stop = byId("terminal-stop");
  const state = byId("terminal-state");
  const encoder = new TextEncoder();
  let socket = null;
  let view = null;

  if (pod) {
    fill(byId("terminal-container"), data.containers.map((one) => el("option", { value: one.name }, one.name)));
    byId("terminal-command").value = data.windows ? "cmd" : "sh";
    byId("terminal-attach").addEventListener("click", () => open("attach"));
    byId("terminal-command").addEventListener("keydown", (event) => {
      if (event.key === "Enter") open("exec");
    });
  }
  run.addEventListener("click", () => open("exec"));
  stop.addEventListener("click", () => socket?.close());

  function setState(name, text) {
    state.dataset.state = name;
    state.textContent = text;
  }

  function send(channel, text) {
    if (socket?.readyState !== WebSocket.OPEN) return;
    const bytes = encoder.encode(text);
    const frame = new Uint8Array(bytes.length + 1);
    frame[0] = channel;
    frame.set(bytes, 1);
    socket.send(frame);
  }

  function open(mode) {
    socket?.close();
    const query = new URLSearchParams({ mode });
    if (pod) {
      const container = byId("terminal-container").value;
      const attached = data.containers.find((one) => one.name === container);
      query.set("container", container);
      query.set("tty", mode === "attach" && !attached?.tty ? "0" : "1");
      query.set("stdin", mode === "attach" && !attached?.stdin ? "0" : "1");
      if (mode === "exec") for (const word of words(byId("terminal-command").value)) query.append("command", word);
    }
    view?.close();
    const newlines = mode === "attach" && query.get("tty") === "0";
    const decoder = new TextDecoder();
    view = new TerminalView(byId("terminal-box"), {
      onbytes: (text) => send(STDIN, text),
      onsize: (columns, rows) => send(RESIZE, JSON.stringify({ Width: columns, Height: rows })),
    });
    const shown = view;
    const address = new URL(`${base}/terminal?${query}`, location.href);
    address.protocol = location.protocol === "https:" ? "wss:" : "ws:";
    const current = new WebSocket(address, PROTOCOLS);
    let ended = "";
    socket = current;
    current.binaryType = "arraybuffer";
    setState("", "connecting");
    current.onopen = () => {
      setState("live", "connected");
      stop.hidden = false;
      send(RESIZE, JSON.stringify({ Width: shown.screen.columns, Height: shown.screen.rows }));
      shown.input.focus();
    };
    current.onmessage = (event) => {
      const bytes = new Uint8Array(event.data);
      if (!bytes.length) return;
      if (bytes[0] === STDOUT || bytes[0] === STDERR) {
        const text = decoder.decode(bytes.subarray(1), { stream: true });
        shown.write(newlines ? text.replace(/\r?\n/g, "\r\n") : text);
      } else if (bytes[0] === ERROR && bytes.length > 1) ended = outcome(new TextDecoder().decode(bytes.subarray(1)));
    };
    current.onclose = () => {
      if (socket !== current) return;
      stop.hidden = true;
      setState(ended ? "" : "failed", ended || "disconnected");
    };
  }
}

/** The text of the status at the end of a command. */
function outcome(text) {
  try {
    const status = JSON.parse(text);
    if (status.status === "Success") return "ended with exit code 0";
    const code = status.details?.causes?.find((cause) => cause.reason === "ExitCode")?.message;
    return code ? `ended with exit code ${code}` : status.message || "failed";
  } catch {
    return text;
  }
}

/** The words of a command line; quotes keep spaces. */
export function words(text) {
  return [...text.matchAll(/"([^"]*)"|'([^']*)'|(\S+)/g)].map((match) => match[1] ?? match[2] ?? match[3]);
}
