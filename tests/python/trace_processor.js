// Perfetto's trace processor, as its page has it (WebAssembly), under node: the bytes of its RPC on standard input and output.
//   node trace_processor.js DIRECTORY   where the page's engine_bundle.js lies
const fs = require('fs');
const path = require('path');
const vm = require('vm');

const directory = process.argv[2];
const port = {postMessage: (message) => fs.writeSync(1, message)};

// The engine asks for its code at once, and for nothing else.
class Request {
  open(method, name) {
    this.name = path.basename(name);
  }
  send() {
    this.response = fs.readFileSync(path.join(directory, this.name));
  }
}

// What a browser's worker has, as far as the engine asks for it.
const worker = {
  ArrayBuffer, TextDecoder, TextEncoder, TypeError, Uint8Array, URL, WebAssembly, WorkerGlobalScope: Object, XMLHttpRequest: Request,
  console: {log: console.error, error: console.error, warn: console.error},
  crypto: globalThis.crypto,
  importScripts: () => {},
  location: {href: 'file:///engine_bundle.js'},
  performance, setTimeout,
};
worker.self = worker;
vm.runInContext(fs.readFileSync(path.join(directory, 'engine_bundle.js'), 'utf8'), vm.createContext(worker));
worker.onmessage({data: port});
setTimeout(() => process.stdin.on('data', (chunk) => port.onmessage({data: new Uint8Array(chunk)})), 0);
