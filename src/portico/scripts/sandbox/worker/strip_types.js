// Removes the types of TypeScript with Sucrase; text and answer are JSON.
// Frozen, so that no script's text can make Sucrase leave state behind for the next one.
for (const one of [Object, Array, String, Number, Map, Set, Function, RegExp, Error]) {
  Object.freeze(one); Object.freeze(one.prototype);
}

// Sucrase would remove a namespace whole: it becomes the call of a function that returns what is exported.
const openNamespaces = (code) => {
  if (!/\bnamespace\s+\w+\s*\{/.test(code)) return code;
  const starts = [0];
  for (let at = code.indexOf("\n"); at >= 0; at = code.indexOf("\n", at + 1)) starts.push(at + 1);
  const tokens = [];
  for (const line of sucrase.getFormattedTokens(code, {transforms: ["typescript"]}).split("\n")) {
    const found = /^(\d+):(\d+)-(\d+):(\d+)\s+(\S+)/.exec(line);
    if (!found || found[5] === "template" || found[5] === "string") continue;
    const start = starts[found[1] - 1] + +found[2] - 1;
    const end = starts[found[3] - 1] + +found[4] - 1;
    tokens.push({start, end, text: code.slice(start, end)});
  }
  const blocks = [];
  let changed = "", done = 0;
  const replace = (start, end, text) => { changed += code.slice(done, start) + text; done = end; };
  for (let at = 0; at < tokens.length; at++) {
    const [before, one, name, open] = [tokens[at - 1], tokens[at], tokens[at + 1], tokens[at + 2]];
    const block = blocks[blocks.length - 1];
    if (one.text === "namespace" && open?.text === "{" && !["declare", "."].includes(before?.text)) {
      replace(one.start, open.end, `var ${name.text} = (() => {`);
      blocks.push({names: []});
      at += 2;
    } else if (block?.names && one.text === "export") {
      replace(one.start, one.end, "");
      let next = at + 1;
      while (/^(?:async|function|\*|abstract|class|const|let|var|enum|namespace)$/.test(tokens[next].text)) next++;
      if (next > at + 1) block.names.push(tokens[next].text);
    } else if (one.text === "{" || one.text === "${") blocks.push({});
    else if (one.text === "}" && blocks.pop()?.names) replace(one.start, one.end, `; return {${block.names}}; })();`);
  }
  return changed + code.slice(done);
};

(text) => {
  try {
    const options = {transforms: ["typescript"], disableESTransforms: true};
    return JSON.stringify({code: sucrase.transform(openNamespaces(JSON.parse(text)), options).code});
  } catch (error) {
    if (!(error instanceof SyntaxError || error.constructor === Error)) throw error;
    return JSON.stringify({error: String(error && error.message)});
  }
}
