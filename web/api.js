// Requests to the server that served this page. Paths are relative, so that it also works behind a
// proxy that adds a prefix.

const KEY = "hayate-api-key";
const MAX_EVENT_CHARS = 1 << 24; // an event beyond it is a fault of the server

export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

// Asks for the API key once, and again when it turns out wrong. One dialog at a time.
let asking = null;
function askForKey() {
  asking ??= new Promise((resolve) => {
    const dialog = document.getElementById("key-dialog");
    const input = document.getElementById("key");
    input.value = "";
    dialog.addEventListener("close", () => {
      asking = null;
      if (input.value) sessionStorage.setItem(KEY, input.value);
      resolve(Boolean(input.value));
    }, { once: true });
    dialog.showModal();
  });
  return asking;
}

async function messageOf(response) {
  const text = await response.text();
  try {
    const body = JSON.parse(text);
    return body.error?.message ?? body.message ?? text;
  } catch {
    return text || response.statusText;
  }
}

export async function request(path, options = {}) {
  for (;;) {
    const headers = { ...options.headers };
    const key = sessionStorage.getItem(KEY);
    if (key) headers.Authorization = "Bearer " + key;
    const response = await fetch(path, { ...options, headers, cache: "no-store" });
    if (response.ok) return response;
    const message = await messageOf(response);
    if (response.status === 401 && await askForKey()) continue;
    throw new ApiError(response.status, message);
  }
}

export async function getJson(path, options) {
  return (await request(path, options)).json();
}

// The data of each server-sent event of a streamed answer.
export async function* streamEvents(path, body, signal) {
  const response = await request(path, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
    signal,
  });
  let held = "";
  for await (const piece of textOf(response.body)) {
    held = (held + piece).replaceAll("\r\n", "\n");
    if (held.length > MAX_EVENT_CHARS) throw new ApiError(0, "an event of the stream is too long");
    for (let end = held.indexOf("\n\n"); end >= 0; end = held.indexOf("\n\n")) {
      const lines = held.slice(0, end).split("\n").filter((line) => line.startsWith("data:"));
      held = held.slice(end + 2);
      const data = lines.map((line) => line.slice(5).trimStart()).join("\n");
      if (data === "[DONE]") return;
      if (data) yield JSON.parse(data);
    }
  }
}

// Not every browser iterates over a ReadableStream.
async function* textOf(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield value;
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
