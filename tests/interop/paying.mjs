// Makes the client of a package a payer that the judge of payers can start: see the guide, "Judge your payer".
// With X402SIM_TASK_FILE set, one start: it buys, prints what it bought, exits 0, or 75 to be started again. Without
// it, a payer behind HTTP: it prints its URL, and each POST of a task is a start. There the client of a purchase is
// kept between its starts, so that whatever the package remembers in memory is remembered.
import { readFileSync } from "node:fs";
import { createServer } from "node:http";

const DEADLINE_MS = 9000; // of a caller: no package has one of its own for a whole answer
const AGAIN = 75;

// `open(task)` returns the client of a purchase: an async function of the task that returns {status, text}.
export function paying(open) {
  const file = process.env.X402SIM_TASK_FILE;
  if (file) return once(open, JSON.parse(readFileSync(file, "utf8")));
  const clients = new Map();
  const server = createServer(async (request, answer) => {
    try {
      let body = "";
      for await (const part of request) body += part;
      const task = JSON.parse(body);
      if (!clients.has(task.state_dir)) clients.set(task.state_dir, await open(task));
      const { status, text } = await clients.get(task.state_dir)(task);
      answer.writeHead(status >= 200 && status < 300 ? 200 : 500).end(text);
    } catch (error) {
      answer.writeHead(500).end(String(error));
    }
  });
  process.on("unhandledRejection", (error) => console.error(String(error))); // of a start that nobody waits for
  server.listen(0, "127.0.0.1", () => console.log(`http://127.0.0.1:${server.address().port}`));
}

async function once(open, task) {
  try {
    const { status, text } = await (await open(task))(task);
    if (status < 200 || status >= 300) throw new Error(`it answered ${status}`);
    console.log(text);
    process.exit(0);
  } catch (error) {
    console.error(String(error));
    process.exit(AGAIN);
  }
}

// How a client with the interface of `fetch` buys.
export const withFetch = (pay) => async (task) => {
  const answer = await pay(task.url, { method: task.method, signal: AbortSignal.timeout(DEADLINE_MS) });
  return { status: answer.status, text: await answer.text() };
};

// How one with the interface of axios buys.
export const withAxios = (pay) => async (task) => {
  const signal = AbortSignal.timeout(DEADLINE_MS);
  const answer = await pay.request({ url: task.url, method: task.method, signal, timeout: DEADLINE_MS });
  return { status: answer.status, text: JSON.stringify(answer.data) };
};
