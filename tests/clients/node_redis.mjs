// node-redis (npm: redis).
import { createClient } from "redis";
import { run, show, until } from "./parts.mjs";

async function connect(port, options = {}) {
  const client = createClient({ socket: { host: "127.0.0.1", port, reconnectStrategy: false }, ...options });
  client.on("error", () => {});
  await client.connect();
  return client;
}

async function fresh(port, options) {
  const client = await connect(port, options);
  await client.flushAll();
  return client;
}

const info = ({ length, groups, "last-generated-id": last }) => [length, groups, last];

async function streams(port) {
  for (const RESP of [2, 3]) {
    const c = await fresh(port, { RESP });
    for (let n = 1; n <= 6; n++) await show("xAdd", c.xAdd("s", `${n}-0`, { n: `${n}`, text: `entry ${n}` }));
    await show("xAdd again", c.xAdd("s", "6-0", { n: "6" }));
    await show("xAdd trimming", c.xAdd("s", "7-0", { n: "7" }, { TRIM: { strategy: "MAXLEN", threshold: 6 } }));
    await show("xAdd nomkstream", c.xAddNoMkStream("none", "*", { n: "1" }));
    await show("xLen", c.xLen("s"));
    await show("xRange", c.xRange("s", "(2-0", "+", { COUNT: 2 }));
    await show("xRevRange", c.xRevRange("s", "+", "-", { COUNT: 2 }));
    await show("xRead", c.xRead([{ key: "s", id: "5-0" }, { key: "none", id: "0" }]));
    await show("xRead nothing", c.xRead({ key: "s", id: "$" }));
    await show("xDel", c.xDel("s", ["3-0", "99-0"]));
    await show("xTrim", c.xTrim("s", "MINID", "5-0"));
    await show("xInfoStream", async () => info(await c.xInfoStream("s")));
    await show("wrong type", async () => [await c.set("k", "v"), await c.xAdd("k", "*", { n: "1" })]);
    await show("binary", async () => [await c.xAdd("b", "1-0", { "a b\r\n": "\u00e9\0" }), await c.xRange("b", "-", "+")]);
    c.destroy();
  }
}

async function groups(port) {
  const c = await fresh(port);
  await show("xGroupCreate", c.xGroupCreate("s", "g", "0", { MKSTREAM: true }));
  await show("xGroupCreate again", c.xGroupCreate("s", "g", "0"));
  for (let n = 1; n <= 6; n++) await c.xAdd("s", `${n}-0`, { n: `${n}` });
  await show("xReadGroup", c.xReadGroup("g", "ann", { key: "s", id: ">" }, { COUNT: 3 }));
  await show("xReadGroup bob", c.xReadGroup("g", "bob", { key: "s", id: ">" }, { COUNT: 1 }));
  await show("xReadGroup history", c.xReadGroup("g", "ann", { key: "s", id: "0" }));
  await show("xPending", c.xPending("s", "g"));
  await show("xPendingRange", async () =>
    (await c.xPendingRange("s", "g", "-", "+", 10)).map((e) => [e.id, e.consumer, e.deliveriesCounter]),
  );
  await show("xAck", c.xAck("s", "g", ["1-0", "6-0"]));
  await show("xClaim", c.xClaim("s", "g", "bob", 0, ["2-0"]));
  await show("xClaimJustId", c.xClaimJustId("s", "g", "bob", 0, "3-0"));
  await show("xAutoClaim", c.xAutoClaim("s", "g", "eve", 0, "0-0", { COUNT: 2 }));
  await show("xInfoGroups", async () =>
    (await c.xInfoGroups("s")).map((g) => [g.name, g.consumers, g.pending, g["last-delivered-id"], g.lag]),
  );
  await show("xInfoConsumers", async () => (await c.xInfoConsumers("s", "g")).map((x) => [x.name, x.pending]));
  await show("xGroupCreateConsumer", c.xGroupCreateConsumer("s", "g", "new"));
  await show("xGroupDelConsumer", c.xGroupDelConsumer("s", "g", "eve"));
  await show("xGroupSetId", c.xGroupSetId("s", "g", "4-0"));
  await show("xAckDel", () => c.xAckDel("s", "g", ["4-0", "9-0"], "DELREF"));
  await show("xDelEx", () => c.xDelEx("s", ["5-0", "9-0"], "ACKED"));
  await show("xGroupDestroy", c.xGroupDestroy("s", "g"));
  await show("no group", c.xReadGroup("g", "ann", { key: "s", id: ">" }));
  c.destroy();
}

async function blocking(port) {
  const c = await fresh(port);
  const reader = await connect(port);
  const waits = async () => (await c.info("clients")).includes("blocked_clients:1");
  const read = reader.xRead({ key: "s", id: "$" }, { BLOCK: 0 });
  await until(waits);
  await c.xAdd("s", "1-0", { n: "1" });
  await show("xRead", read);
  await c.xGroupCreate("s", "g", "$");
  const inGroup = reader.xReadGroup("g", "ann", { key: "s", id: ">" }, { BLOCK: 0, COUNT: 1 });
  await until(waits);
  await c.multi().xAdd("s", "2-0", { n: "2" }).xAdd("s", "3-0", { n: "3" }).exec();
  await show("xReadGroup", inGroup);
  await show("time is over", reader.xRead({ key: "s", id: "$" }, { BLOCK: 10 }));
  const destroyed = reader.xReadGroup("g", "ann", { key: "none", id: ">" }, { BLOCK: 0 });
  await show("no group", destroyed);
  reader.destroy();
  c.destroy();
}

async function transactions(port) {
  const c = await fresh(port);
  await show("multi", c.multi().set("k", "1").incr("k").xAdd("s", "1-0", { n: "1" }).xLen("s").exec());
  await show("failing", async () => {
    try {
      return await c.multi().set("k", "x").incr("k").get("k").exec();
    } catch (error) {
      return [error.constructor.name, error.replies];
    }
  });
  const other = await connect(port);
  await c.watch("k");
  await other.set("k", "changed");
  await show("watched", c.multi().set("k", "mine").exec());
  await show("after", c.get("k"));
  await show("pipeline", c.multi().get("k").xLen("s").execAsPipeline());
  other.destroy();
  c.destroy();
}

async function pubsub(port) {
  const c = await fresh(port);
  const listener = await connect(port);
  const heard = [];
  await listener.subscribe("news", (message, channel) => heard.push([channel, message]));
  await listener.pSubscribe("n*", (message, channel) => heard.push(["n*", channel, message]));
  await show("publish", async () => [await c.publish("news", "a"), await c.publish("nothing", "b"), await c.publish("x", "c")]);
  await until(() => heard.length >= 3);
  await listener.unsubscribe("news");
  await show("publish", c.publish("news", "d"));
  await until(() => heard.length >= 4);
  await listener.pUnsubscribe("n*");
  await show("heard", heard);
  await show("ping", listener.ping());
  listener.destroy();
  c.destroy();
}

async function scripts(port) {
  const c = await fresh(port);
  const once = "if redis.call('SET', KEYS[1], 1, 'NX') then return redis.call('XADD', KEYS[2], ARGV[1], 'n', 1) end return false";
  await show("eval", c.eval(once, { keys: ["lock", "s"], arguments: ["1-0"] }));
  await show("eval again", c.eval(once, { keys: ["lock", "s"], arguments: ["2-0"] }));
  await show("load", async () => c.evalSha(await c.scriptLoad("return {1, 'two', {ARGV[1]}, false, 5}"), { arguments: ["x"] }));
  await show("unknown", c.evalSha("0".repeat(40)));
  await show("error", c.eval("return redis.error_reply('MINE of my own')"));
  await show("failing", c.eval("return redis.call('XADD', KEYS[1], '1-0', 'n', 1)", { keys: ["lock"] }).catch((e) => e.message.slice(0, 9)));
  c.destroy();
}

async function tracking(port) {
  const other = await fresh(port);
  const c = await connect(port, { RESP: 3, clientSideCache: { ttl: 0, maxEntries: 100, evictPolicy: "LRU" } });
  await other.set("k", "1");
  await show("get", async () => [await c.get("k"), await c.get("k")]);
  await other.set("k", "2");
  await until(async () => (await c.get("k")) === "2");
  await show("invalidated", c.get("k"));
  await other.flushAll();
  await until(async () => (await c.get("k")) === null);
  await show("flushed", c.get("k"));
  c.destroy();
  other.destroy();
}

async function sharded(port) {
  const c = await fresh(port);
  const listener = await connect(port);
  const heard = [];
  await listener.sSubscribe("news", (message, channel) => heard.push([channel, message]));
  await show("sPublish", async () => [await c.sPublish("news", "a"), await c.publish("news", "b")]);
  await until(() => heard.length >= 1);
  await show("channels", async () => [await c.pubSubShardChannels(), await c.pubSubChannels()]);
  await listener.sUnsubscribe("news");
  await show("sPublish", c.sPublish("news", "c"));
  await show("heard", heard);
  listener.destroy();
  c.destroy();
}

await run({ streams, groups, blocking, transactions, pubsub, scripts, tracking, sharded });
