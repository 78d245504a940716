// Drives the real OpenAI SDK for Node: client.mjs FOLDER_OF_NODE_MODULES BASE_URL. Says of its call what clients.py says.
import { createRequire } from "node:module";

const [folder, base] = process.argv.slice(2);
const { OpenAI } = createRequire(`${folder}/`)("openai");
const client = new OpenAI({ baseURL: `${base}/v1`, apiKey: "sk-x" });
let said = { answered: true, error: null, words: "" };
try {
  await client.embeddings.create({ model: "m", input: "a" });
} catch (error) {
  said = { answered: false, error: error.constructor.name, words: String(error) };
}
console.log(JSON.stringify([said]));
