/** A form made from a tool's schema, and what comes of a call. */
import { request } from "../state/api.js";
import { clip, formatMs } from "../state/format.js";
import { html, useMemo, useState } from "../view.js";
import { JsonView, LongText, Outcome, ProblemBox } from "./parts.js";

const MAX_FIELDS = 60;
const IMAGE_TYPES = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/** @typedef {{name: string, kind: "text" | "number" | "boolean" | "choice" | "list" | "json", isRequired: boolean, choices: any[], schema: any}} Field */

/** @param {{tool: any}} props */
export function TryForm({ tool }) {
  const fields = useMemo(() => listFields(tool.input_schema), [tool.hash]);
  const [texts, setTexts] = useState(/** @type {Record<string, string>} */ ({}));
  const [json, setJson] = useState("");
  const [isJson, setIsJson] = useState(fields === null);
  const [state, setState] = useState(/** @type {{isBusy: boolean, problem: any, answer: any}} */ ({ isBusy: false, problem: null, answer: null }));

  const read = () => (isJson ? JSON.parse(json || "{}") : readFields(fields || [], texts));
  const toggle = () => {
    if (!isJson) {
      try {
        setJson(JSON.stringify(readFields(fields || [], texts), null, 2));
      } catch {
        setJson("{}");
      }
    }
    setIsJson(!isJson);
  };
  const call = async (/** @type {Event} */ event) => {
    event.preventDefault();
    setState({ isBusy: true, problem: null, answer: null });
    try {
      const given = read();
      const answer = await request("calls", { method: "POST", body: { tool: tool.tool, arguments: given } });
      setState({ isBusy: false, problem: null, answer });
    } catch (problem) {
      setState({ isBusy: false, problem, answer: null });
    }
  };
  return html`<form class="try" onSubmit=${call}>
    ${isJson
      ? html`<label for="try-json">Arguments as JSON</label><textarea id="try-json" rows="8" spellcheck="false" value=${json} onInput=${(/** @type {any} */ event) => setJson(event.target.value)}></textarea>`
      : (fields || []).map((field) => html`<${FieldInput} key=${field.name} field=${field} example=${showExample(tool.example?.[field.name])} text=${texts[field.name] ?? ""} change=${(/** @type {string} */ text) => setTexts({ ...texts, [field.name]: text })} />`)}
    ${!isJson && fields?.length === 0 && html`<p class="quiet">It takes no arguments.</p>`}
    <div class="buttons">
      <button class="primary" disabled=${state.isBusy}>${state.isBusy ? "Calling …" : "Call it"}</button>
      ${fields !== null && html`<button type="button" onClick=${toggle}>${isJson ? "As a form" : "As JSON"}</button>`}
    </div>
    ${tool.annotations?.destructiveHint === true && html`<p class="warning">Its server says that it destroys something. The call is real, made as you.</p>`}
    <div role="status"><${ProblemBox} problem=${state.problem} /><${Answer} answer=${state.answer} /></div>
  </form>`;
}

/** @param {{answer: any}} props */
function Answer({ answer }) {
  if (!answer) return null;
  const result = answer.result || {};
  const blocks = Array.isArray(result.content) ? result.content.slice(0, 50) : [];
  return html`<div class="answer">
    <p><${Outcome} ok=${answer.ok} /> in ${formatMs(answer.ms)}</p>
    ${blocks.map((/** @type {any} */ block, /** @type {number} */ at) => html`<${Block} key=${at} block=${block} />`)}
    ${result.structuredContent !== undefined && html`<details><summary>Structured content</summary><${JsonView} value=${result.structuredContent} label="structured content" /></details>`}
  </div>`;
}

/** @param {{block: any}} props */
function Block({ block }) {
  if (block.type === "text") return html`<pre tabindex="0" role="region" aria-label="Text of the result"><${LongText} text=${block.text} length=${4_000} /></pre>`;
  if (block.type === "image" && IMAGE_TYPES.includes(block.mimeType) && /^[A-Za-z0-9+/=\s]*$/.test(block.data)) {
    return html`<img src=${`data:${block.mimeType};base64,${block.data}`} alt="Image of the result" />`;
  }
  return html`<${JsonView} value=${block} label=${`${clip(block.type, 40)} block`} />`;
}

/** @param {{field: Field, text: string, example: string, change: (text: string) => void}} props */
function FieldInput({ field, text, example, change }) {
  const id = `try-${field.name}`;
  const description = clip(field.schema?.description, 240);
  const input = (/** @type {any} */ event) => change(event.target.value);
  const common = { id, "aria-describedby": description ? `${id}-note` : undefined };
  return html`<div class="field">
    <label for=${id}><code>${clip(field.name, 80)}</code>${field.isRequired ? html`<span class="required"> required</span>` : ""}</label>
    ${field.kind === "choice" || field.kind === "boolean"
      ? html`<select ...${common} value=${text} onChange=${input}><option value="">${field.isRequired ? "choose" : "leave out"}</option>
          ${field.choices.map((choice) => html`<option key=${String(choice)} value=${JSON.stringify(choice)}>${clip(String(choice), 80)}</option>`)}</select>`
      : field.kind === "json" || field.kind === "list"
        ? html`<textarea ...${common} rows="3" spellcheck="false" placeholder=${field.kind === "list" ? "one a line" : `JSON${example && `, such as ${example}`}`} value=${text} onInput=${input}></textarea>`
        : html`<input ...${common} inputmode=${field.kind === "number" ? "decimal" : undefined} autocomplete="off" spellcheck="false" placeholder=${example && `such as ${example}`} value=${text} onInput=${input} />`}
    ${description && html`<p class="note foreign" id=${`${id}-note`}>${description}</p>`}
  </div>`;
}

/** An example as a hint; made-up ones in angle brackets say nothing. @param {any} value */
function showExample(value) {
  const text = typeof value === "string" ? value : JSON.stringify(value) ?? "";
  return text.startsWith("<") ? "" : clip(text, 60);
}

/** Fields of a schema; null where only JSON can say it. @param {any} schema @returns {Field[] | null} */
export function listFields(schema) {
  const properties = schema?.properties;
  if (!properties || typeof properties !== "object") return schema?.type === "object" && !schema?.anyOf && !schema?.oneOf ? [] : null;
  const names = Object.keys(properties);
  if (names.length > MAX_FIELDS) return null;
  const required = new Set(Array.isArray(schema.required) ? schema.required : []);
  const fields = names.map((name) => describeField(name, properties[name], required.has(name)));
  return fields.sort((one, other) => Number(other.isRequired) - Number(one.isRequired));
}

/** @param {string} name @param {any} schema @param {boolean} isRequired @returns {Field} */
function describeField(name, schema, isRequired) {
  const types = [schema?.type ?? []].flat().filter((/** @type {any} */ one) => one !== "null");
  const variants = (schema?.anyOf || schema?.oneOf || []).filter((/** @type {any} */ one) => one?.type !== "null");
  const plain = variants.length === 1 ? { ...schema, ...variants[0] } : schema;
  const type = types.length === 1 ? types[0] : plain?.type;
  /** @type {Field["kind"]} */
  let kind = "json";
  /** @type {any[]} */
  let choices = [];
  if (Array.isArray(plain?.enum)) {
    kind = "choice";
    choices = plain.enum.slice(0, 500);
  } else if (type === "boolean") {
    kind = "boolean";
    choices = [true, false];
  } else if (type === "string") kind = "text";
  else if (type === "number" || type === "integer") kind = "number";
  else if (type === "array" && plain.items?.type === "string" && !plain.items.enum) kind = "list";
  return { name, kind, isRequired, choices, schema: plain };
}

/** Arguments as the fields have them; those left empty are left out. @param {Field[]} fields @param {Record<string, string>} texts */
export function readFields(fields, texts) {
  /** @type {Record<string, any>} */
  const given = {};
  for (const field of fields) {
    const text = texts[field.name] ?? "";
    if (text === "") continue;
    if (field.kind === "text") given[field.name] = text;
    else if (field.kind === "list") given[field.name] = text.split("\n").filter(Boolean);
    else if (field.kind === "number") given[field.name] = Number.isNaN(Number(text)) ? text : Number(text);
    else given[field.name] = parseJson(text, field.name);
  }
  return given;
}

/** @param {string} text @param {string} name */
function parseJson(text, name) {
  try {
    return JSON.parse(text);
  } catch {
    throw new Error(`${name} is not JSON`);
  }
}
