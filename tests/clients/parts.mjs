// Runs the named parts of a client's script and prints their results, one JSON text a line.

function plain(value) {
  if (value === undefined) return null;
  if (typeof value === "bigint") return Number(value);
  if (value instanceof Error) return `${value.message}`;
  if (Buffer.isBuffer(value)) return value.toString();
  if (value instanceof Map) return Object.fromEntries([...value].map(([k, v]) => [String(k), plain(v)]));
  if (value instanceof Set) return [...value].map(plain).sort();
  if (Array.isArray(value)) return value.map(plain);
  if (value !== null && typeof value === "object") {
    return Object.fromEntries(Object.keys(value).sort().map((k) => [k, plain(value[k])]));
  }
  return value;
}

// Await a promise (or the result of a function); print what it resolves to, or its error.
export async function show(name, work) {
  let result;
  try {
    result = plain(await (typeof work === "function" ? work() : work));
  } catch (error) {
    result = `error: ${error.message}`;
  }
  console.log(JSON.stringify([name, result]));
}

// Resolve when the condition holds.
export async function until(condition) {
  const end = Date.now() + 20000;
  while (!(await condition())) {
    if (Date.now() > end) throw new Error("gave up waiting");
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

// argv: the port, and the names of parts.
export async function run(parts) {
  const [port, ...names] = process.argv.slice(2);
  for (const name of names) {
    console.log(`== ${name}`);
    try {
      await parts[name](Number(port));
    } catch (error) {
      console.log(JSON.stringify(["failed", `${error.message}`]));
    }
  }
  process.exit(0);
}
