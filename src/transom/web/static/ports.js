// The Ports tab: port-forwards of this pod.
import { byId, el, fill, toast } from "./dom.js";
import { getJson, postJson } from "./server.js";

export function startPorts(base, data) {
  fill(byId("known-ports"), data.ports.map((one) => el("option", { value: one.port }, one.name)));
  if (data.ports.length) byId("forward-port").value = data.ports[0].port;

  async function show() {
    const { forwards } = await getJson(`${base}/forwards`);
    fill(
      byId("forwards"),
      forwards.map((one) =>
        el(
          "li",
          {},
          `Port ${one.port}: `,
          el("a", { href: one.link, target: "_blank", rel: "noopener noreferrer" }, new URL(one.link).origin),
          " ",
          el("button", { type: "button", class: "quiet", onclick: () => change("forwards/close", { id: one.id }) }, "Close"),
        ),
      ),
    );
  }

  async function change(path, body) {
    try {
      await postJson(`${base}/${path}`, body);
      await show();
    } catch (problem) {
      toast(problem.message, "error");
    }
  }

  byId("forward-form").addEventListener("submit", (event) => {
    event.preventDefault();
    change("forwards", { port: Number(byId("forward-port").value) });
  });
  show().catch((problem) => toast(problem.message, "error"));
}
