// Run an ONNX model in ONNX Runtime Web. What serve.py says holds here.
// In Node: node serve.cjs FOLDER MODEL, where FOLDER has node_modules/onnxruntime-web.
// In a browser: serve_browser.py serves the page of this script, and passes the lines on.
"use strict";

// The element types of numpy and of ONNX Runtime Web.
const TYPES = {
  bool: ["bool", Uint8Array], int8: ["int8", Int8Array], uint8: ["uint8", Uint8Array],
  int16: ["int16", Int16Array], uint16: ["uint16", Uint16Array], int32: ["int32", Int32Array],
  uint32: ["uint32", Uint32Array], int64: ["int64", BigInt64Array],
  uint64: ["uint64", BigUint64Array], float16: ["float16", Uint16Array],
  float32: ["float32", Float32Array], float64: ["float64", Float64Array],
};
const NAMES = Object.fromEntries(Object.entries(TYPES).map(([name, [type]]) => [type, name]));

function decode(ort, [type, shape, text]) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const [name, Kind] = TYPES[type];
  return new ort.Tensor(name, new Kind(bytes.buffer), shape);
}

function encode(tensor) {
  const { buffer, byteOffset, byteLength } = tensor.data;
  const bytes = new Uint8Array(buffer, byteOffset, byteLength);
  let text = "";
  for (const byte of bytes) text += String.fromCharCode(byte);
  return [NAMES[tensor.type], tensor.dims.map(Number), btoa(text)];
}

async function serve(ort, model, provider, lines, send) {
  async function answer(make) {
    let line;
    try {
      line = await make();
    } catch (error) {
      line = { error: String(error) };
    }
    await send(JSON.stringify(line) + "\n");
  }

  ort.env.wasm.numThreads = 1;
  ort.env.logLevel = "error";
  let session;
  await answer(async () => {
    session = await ort.InferenceSession.create(model, { executionProviders: [provider] });
    return { loaded: true };
  });
  for await (const line of lines) {
    await answer(async () => {
      const arrays = Object.entries(JSON.parse(line));
      const feeds = Object.fromEntries(arrays.map(([name, array]) => [name, decode(ort, array)]));
      const made = await session.run(feeds);
      return { outputs: Object.fromEntries(Object.entries(made).map(([n, t]) => [n, encode(t)])) };
    });
  }
}

async function* fetchLines() {
  while (true) yield (await fetch("/line")).text();
}

if (typeof window === "undefined") {
  const [folder, model] = process.argv.slice(2);
  const place = require("path").join(require("path").resolve(folder), "x.cjs");
  const ort = require("module").createRequire(place)("onnxruntime-web");
  const lines = require("readline").createInterface({ input: process.stdin });
  serve(ort, model, "wasm", lines, (text) => process.stdout.write(text));
} else {
  const send = (text) => fetch("/answer", { method: "POST", body: text });
  serve(window.ort, "/model.onnx", "webgpu", fetchLines(), send);
}
