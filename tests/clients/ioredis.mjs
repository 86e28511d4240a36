// ioredis.
import { Redis } from "ioredis";
import { run, show, until } from "./parts.mjs";

const connect = (port, options = {}) => new Redis({ host: "127.0.0.1", port, retryStrategy: null, ...options });

async function fresh(port, options) {
  const client = connect(port, options);
  await client.flushall();
  return client;
}

const pick = (row, names) => names.map((name) => row[row.indexOf(name) + 1]);

async function streams(port) {
  const c = await fresh(port);
  for (let n = 1; n <= 6; n++) await show("xadd", c.xadd("s", `${n}-0`, "n", n, "text", `entry ${n}`));
  await show("xadd again", c.xadd("s", "6-0", "n", 6));
  await show("xadd trimming", c.xadd("s", "MAXLEN", 6, "7-0", "n", 7));
  await show("xlen", c.xlen("s"));
  await show("xrange", c.xrange("s", "(2-0", "+", "COUNT", 2));
  await show("xrevrange", c.xrevrange("s", "+", "-", "COUNT", 2));
  await show("xread", c.xread("STREAMS", "s", "none", "5-0", "0"));
  await show("xread nothing", c.xread("STREAMS", "s", "$"));
  await show("buffers", c.xrangeBuffer("s", "7-0", "7-0"));
  await show("xdel", c.xdel("s", "3-0", "99-0"));
  await show("xtrim", c.xtrim("s", "MINID", "5-0"));
  await show("xinfo", async () => pick(await c.xinfo("STREAM", "s"), ["length", "groups", "last-generated-id"]));
  await show("key prefix", async () => {
    const prefixed = connect(port, { keyPrefix: "p:" });
    const found = [await prefixed.xadd("s", "1-0", "n", 1), await prefixed.xread("STREAMS", "s", "0")];
    prefixed.disconnect();
    return [...found, await c.exists("p:s")];
  });
  c.disconnect();
}

async function groups(port) {
  const c = await fresh(port);
  await show("xgroup", c.xgroup("CREATE", "s", "g", "0", "MKSTREAM"));
  await show("xgroup again", c.xgroup("CREATE", "s", "g", "0"));
  for (let n = 1; n <= 6; n++) await c.xadd("s", `${n}-0`, "n", n);
  await show("xreadgroup", c.xreadgroup("GROUP", "g", "ann", "COUNT", 3, "STREAMS", "s", ">"));
  await show("xreadgroup bob", c.xreadgroup("GROUP", "g", "bob", "COUNT", 1, "STREAMS", "s", ">"));
  await show("xpending", c.xpending("s", "g"));
  await show("xpending range", async () => (await c.xpending("s", "g", "-", "+", 10)).map((e) => [e[0], e[1], e[3]]));
  await show("xack", c.xack("s", "g", "1-0", "6-0"));
  await show("xclaim", c.xclaim("s", "g", "bob", 0, "2-0"));
  await show("xautoclaim", c.xautoclaim("s", "g", "eve", 0, "0-0", "COUNT", 2));
  await show("xinfo", async () => (await c.xinfo("CONSUMERS", "s", "g")).map((row) => pick(row, ["name", "pending"])));
  await show("delconsumer", c.xgroup("DELCONSUMER", "s", "g", "eve"));
  await show("xackdel", c.call("XACKDEL", "s", "g", "DELREF", "IDS", 2, "4-0", "9-0"));
  await show("destroy", c.xgroup("DESTROY", "s", "g"));
  await show("no group", c.xreadgroup("GROUP", "g", "ann", "STREAMS", "s", ">"));
  c.disconnect();
}

async function blocking(port) {
  const c = await fresh(port);
  const reader = connect(port);
  const waits = async () => (await c.info("clients")).includes("blocked_clients:1");
  const read = reader.xread("BLOCK", 0, "STREAMS", "s", "$");
  await until(waits);
  await c.xadd("s", "1-0", "n", 1);
  await show("xread", read);
  await c.xgroup("CREATE", "s", "g", "$");
  const inGroup = reader.xreadgroup("GROUP", "g", "ann", "BLOCK", 0, "STREAMS", "s", ">");
  await until(waits);
  await c.xadd("s", "2-0", "n", 2);
  await show("xreadgroup", inGroup);
  await show("time is over", reader.xread("BLOCK", 10, "STREAMS", "s", "$"));
  reader.disconnect();
  c.disconnect();
}

async function transactions(port) {
  const c = await fresh(port);
  await show("multi", c.multi().set("k", 1).incr("k").xadd("s", "1-0", "n", 1).xlen("s").exec());
  await show("failing", c.multi().set("k", "x").incr("k").get("k").exec());
  await show("refused", c.multi().set("k").get("k").exec());
  await c.watch("k");
  const other = connect(port);
  await other.set("k", "changed");
  await show("watched", c.multi().set("k", "mine").exec());
  await show("pipeline", c.pipeline().get("k").xlen("s").call("NOSUCH").exec());
  other.disconnect();
  c.disconnect();
}

async function pubsub(port) {
  const c = await fresh(port);
  const listener = connect(port);
  const heard = [];
  listener.on("message", (channel, message) => heard.push([channel, message]));
  listener.on("pmessage", (pattern, channel, message) => heard.push([pattern, channel, message]));
  await show("subscribe", listener.subscribe("news", "more"));
  await show("psubscribe", listener.psubscribe("n*"));
  await show("publish", async () => [await c.publish("news", "a"), await c.publish("nothing", "b"), await c.publish("x", "c")]);
  await until(() => heard.length >= 3);
  await show("unsubscribe", listener.unsubscribe("news"));
  await show("publish", c.publish("news", "d"));
  await until(() => heard.length >= 4);
  await show("heard", heard);
  listener.disconnect();
  c.disconnect();
}

async function scripts(port) {
  const c = await fresh(port);
  c.defineCommand("addOnce", {
    numberOfKeys: 2,
    lua: "if redis.call('SET', KEYS[1], 1, 'NX') then return redis.call('XADD', KEYS[2], ARGV[1], 'n', 1) end return false",
  });
  await show("defineCommand", async () => [await c.addOnce("lock", "s", "1-0"), await c.addOnce("lock", "s", "2-0")]);
  await show("in a pipeline", c.pipeline().addOnce("lock2", "s", "3-0").xlen("s").exec());
  await show("in a transaction", c.multi().addOnce("lock3", "s", "4-0").xlen("s").exec());
  await show("eval", c.eval("return {1, 'two', {ARGV[1]}, false, 5}", 0, "x"));
  await show("ackdel", c.eval("return redis.call('XACK', KEYS[1], 'g', ARGV[1]) + redis.call('XDEL', KEYS[1], ARGV[1])", 1, "s", "1-0"));
  await show("unknown", c.evalsha("0".repeat(40), 0));
  c.disconnect();
}

async function sharded(port) {
  const c = await fresh(port);
  const listener = connect(port);
  const heard = [];
  listener.on("smessage", (channel, message) => heard.push([channel, message]));
  await show("ssubscribe", listener.ssubscribe("news"));
  await show("spublish", async () => [await c.spublish("news", "a"), await c.publish("news", "b")]);
  await until(() => heard.length >= 1);
  await show("sunsubscribe", listener.sunsubscribe("news"));
  await show("heard", heard);
  listener.disconnect();
  c.disconnect();
}

await run({ streams, groups, blocking, transactions, pubsub, scripts, sharded });
