// valkey-glide (npm: @valkey/valkey-glide).
import { Batch, GlideClient, InfBoundary, Logger, ProtocolVersion, Script } from "@valkey/valkey-glide";
import { run, show, until } from "./parts.mjs";

Logger.init("off");

const connect = (port, options = {}) =>
  GlideClient.createClient({ addresses: [{ host: "127.0.0.1", port }], requestTimeout: 20000, ...options });

async function fresh(port, options) {
  const client = await connect(port, options);
  await client.flushall();
  return client;
}

const ALL = [InfBoundary.NegativeInfinity, InfBoundary.PositiveInfinity];

async function streams(port) {
  for (const protocol of [ProtocolVersion.RESP2, ProtocolVersion.RESP3]) {
    const c = await fresh(port, { protocol });
    for (let n = 1; n <= 6; n++) await show("xadd", c.xadd("s", [["n", `${n}`], ["text", `entry ${n}`]], { id: `${n}-0` }));
    await show("xadd again", c.xadd("s", [["n", "6"]], { id: "6-0" }));
    await show("xadd trimming", c.xadd("s", [["n", "7"]], { id: "7-0", trim: { method: "maxlen", threshold: 6, exact: true } }));
    await show("xadd nomkstream", c.xadd("none", [["n", "1"]], { makeStream: false }));
    await show("xlen", c.xlen("s"));
    await show("xrange", c.xrange("s", { value: "2-0", isInclusive: false }, ALL[1], { count: 2 }));
    await show("xrevrange", c.xrevrange("s", ALL[1], ALL[0], { count: 2 }));
    await show("xread", c.xread({ s: "5-0", none: "0" }));
    await show("xread nothing", c.xread({ s: "$" }));
    await show("xdel", c.xdel("s", ["3-0", "99-0"]));
    await show("xtrim", c.xtrim("s", { method: "minid", threshold: "5-0", exact: true }));
    c.close();
  }
}

async function groups(port) {
  const c = await fresh(port);
  await show("xgroupCreate", c.xgroupCreate("s", "g", "0", { mkStream: true }));
  await show("xgroupCreate again", c.xgroupCreate("s", "g", "0"));
  for (let n = 1; n <= 6; n++) await c.xadd("s", [["n", `${n}`]], { id: `${n}-0` });
  await show("xreadgroup", c.xreadgroup("g", "ann", { s: ">" }, { count: 3 }));
  await show("xreadgroup bob", c.xreadgroup("g", "bob", { s: ">" }, { count: 1 }));
  await show("xreadgroup history", c.xreadgroup("g", "ann", { s: "0" }));
  await show("xpending", c.xpending("s", "g"));
  await show("xpending range", async () =>
    (await c.xpendingWithOptions("s", "g", { start: ALL[0], end: ALL[1], count: 10 })).map((e) => [e[0], e[1], e[3]]),
  );
  await show("xack", c.xack("s", "g", ["1-0", "6-0"]));
  await show("xclaim", c.xclaim("s", "g", "bob", 0, ["2-0"]));
  await show("xclaimJustId", c.xclaimJustId("s", "g", "bob", 0, ["3-0"]));
  await show("xautoclaim", c.xautoclaim("s", "g", "eve", 0, "0-0", { count: 2 }));
  await show("xgroupCreateConsumer", c.xgroupCreateConsumer("s", "g", "new"));
  await show("xgroupDelConsumer", c.xgroupDelConsumer("s", "g", "eve"));
  await show("xgroupSetId", c.xgroupSetId("s", "g", "4-0"));
  await show("xgroupDestroy", c.xgroupDestroy("s", "g"));
  await show("no group", c.xreadgroup("g", "ann", { s: ">" }));
  c.close();
}

async function blocking(port) {
  const c = await fresh(port);
  const reader = await connect(port);
  const waits = async () => (await c.info(["clients"])).includes("blocked_clients:1");
  await c.xadd("s", [["n", "0"]], { id: "0-1" });
  const read = reader.xread({ s: "$" }, { block: 0 });
  await until(waits);
  await c.xadd("s", [["n", "1"]], { id: "1-0" });
  await show("xread", read);
  await c.xgroupCreate("s", "g", "$");
  const inGroup = reader.xreadgroup("g", "ann", { s: ">" }, { block: 0 });
  await until(waits);
  await c.xadd("s", [["n", "2"]], { id: "2-0" });
  await show("xreadgroup", inGroup);
  await show("time is over", reader.xread({ s: "$" }, { block: 10 }));
  reader.close();
  c.close();
}

async function transactions(port) {
  const c = await fresh(port);
  const add = () => new Batch(true).set("k", "1").incr("k").xadd("s", [["n", "1"]], { id: "1-0" }).xlen("s");
  await show("atomic", c.exec(add(), true));
  await show("failing", c.exec(new Batch(true).set("k", "x").incr("k").get("k"), false));
  await c.watch(["k"]);
  const other = await connect(port);
  await other.set("k", "changed");
  await show("watched", c.exec(new Batch(true).set("k", "mine"), true));
  await show("pipeline", c.exec(new Batch(false).get("k").xlen("s"), true));
  other.close();
  c.close();
}

async function pubsub(port) {
  const c = await fresh(port);
  const heard = [];
  const Modes = { exact: 0, pattern: 1 };
  const listener = await connect(port, {
    pubsubSubscriptions: {
      channelsAndPatterns: { [Modes.exact]: new Set(["news"]), [Modes.pattern]: new Set(["n*"]) },
      callback: ({ channel, pattern, message }) => heard.push([pattern ?? null, channel, message]),
    },
  });
  await until(async () => (await c.customCommand(["PUBSUB", "NUMPAT"])) === 1);
  await until(async () => (await c.pubsubChannels()).length === 1);
  await show("publish", async () => [await c.publish("a", "news"), await c.publish("b", "nothing"), await c.publish("c", "x")]);
  await until(() => heard.length >= 3);
  await show("heard", heard.map(String).sort());
  listener.close();
  c.close();
}

async function scripts(port) {
  const c = await fresh(port);
  const once = new Script(
    "if redis.call('SET', KEYS[1], 1, 'NX') then return redis.call('XADD', KEYS[2], ARGV[1], 'n', 1) end return false",
  );
  await show("script", c.invokeScript(once, { keys: ["lock", "s"], args: ["1-0"] }));
  await show("script again", c.invokeScript(once, { keys: ["lock", "s"], args: ["2-0"] }));
  await show("eval", c.customCommand(["EVAL", "return {1, 'two', {ARGV[1]}, false, 5}", "0", "x"]));
  c.close();
}

await run({ streams, groups, blocking, transactions, pubsub, scripts });
