// Run an ONNX model in ONNX Runtime Web: node serve.cjs FOLDER MODEL. What serve.py says holds here.
// FOLDER has node_modules/onnxruntime-web.
"use strict";
const path = require("path");
const readline = require("readline");
const { createRequire } = require("module");

const [folder, model] = process.argv.slice(2);
const ort = createRequire(path.join(path.resolve(folder), "x.cjs"))("onnxruntime-web");
ort.env.wasm.numThreads = 1;
ort.env.logLevel = "error";

// The element types of numpy and of ONNX Runtime Web.
const TYPES = {
  bool: ["bool", Uint8Array], int8: ["int8", Int8Array], uint8: ["uint8", Uint8Array],
  int16: ["int16", Int16Array], uint16: ["uint16", Uint16Array], int32: ["int32", Int32Array],
  uint32: ["uint32", Uint32Array], int64: ["int64", BigInt64Array],
  uint64: ["uint64", BigUint64Array], float16: ["float16", Uint16Array],
  float32: ["float32", Float32Array], float64: ["float64", Float64Array],
};
const NAMES = Object.fromEntries(Object.entries(TYPES).map(([name, [type]]) => [type, name]));

function decode([type, shape, text]) {
  const bytes = Buffer.from(text, "base64");
  const [name, Kind] = TYPES[type];
  return new ort.Tensor(name, new Kind(new Uint8Array(bytes).buffer), shape);
}

function encode(tensor) {
  const { buffer, byteOffset, byteLength } = tensor.data;
  const text = Buffer.from(buffer, byteOffset, byteLength).toString("base64");
  return [NAMES[tensor.type], tensor.dims.map(Number), text];
}

async function answer(make) {
  let line;
  try {
    line = await make();
  } catch (error) {
    line = { error: String(error) };
  }
  process.stdout.write(JSON.stringify(line) + "\n");
}

async function main() {
  let session;
  await answer(async () => {
    session = await ort.InferenceSession.create(model, { executionProviders: ["wasm"] });
    return { loaded: true };
  });
  for await (const line of readline.createInterface({ input: process.stdin })) {
    await answer(async () => {
      const feeds = Object.entries(JSON.parse(line)).map(([name, array]) => [name, decode(array)]);
      const made = await session.run(Object.fromEntries(feeds));
      return { outputs: Object.fromEntries(Object.entries(made).map(([n, t]) => [n, encode(t)])) };
    });
  }
}

main();
