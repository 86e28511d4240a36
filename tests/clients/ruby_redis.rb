# ruby-redis (gem redis).
require "json"
require "redis"

Redis.silence_deprecations = true if Redis.respond_to?(:silence_deprecations=)

def show(name)
  result = begin
    yield
  rescue Redis::BaseError => e
    "error: #{e.message.sub(%r{ \(redis://\S+\)\z}, "")}" # newer versions append the URL
  end
  puts JSON.generate([name, result])
end

def connect(port) = Redis.new(host: "127.0.0.1", port: port, timeout: 20)

def fresh(port) = connect(port).tap(&:flushall)

def wait_until
  deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + 20
  until yield
    raise "gave up waiting" if Process.clock_gettime(Process::CLOCK_MONOTONIC) > deadline

    sleep 0.005
  end
end

def streams(port)
  c = fresh(port)
  (1..6).each { |n| show("xadd") { c.xadd("s", { n: n, text: "entry #{n}" }, id: "#{n}-0") } }
  show("xadd again") { c.xadd("s", { n: 6 }, id: "6-0") }
  show("xadd trimming") { c.xadd("s", { n: 7 }, id: "7-0", maxlen: 6) }
  show("xlen") { c.xlen("s") }
  show("xrange") { c.xrange("s", "2-0", "+", count: 2) }
  show("xrevrange") { c.xrevrange("s", "+", "-", count: 2) }
  show("xread") { c.xread(%w[s none], %w[5-0 0]) }
  show("xread nothing") { c.xread("s", "$") }
  show("xdel") { c.xdel("s", "3-0", "99-0") }
  show("xtrim") { c.xtrim("s", 2) }
  show("xinfo") { c.xinfo(:stream, "s").slice("length", "groups", "last-generated-id", "first-entry") }
  show("wrong type") { [c.set("k", "v"), c.xlen("k")] }
end

def groups(port)
  c = fresh(port)
  show("create") { c.xgroup(:create, "s", "g", "0", mkstream: true) }
  show("create again") { c.xgroup(:create, "s", "g", "0") }
  (1..6).each { |n| c.xadd("s", { n: n }, id: "#{n}-0") }
  show("xreadgroup") { c.xreadgroup("g", "ann", "s", ">", count: 3) }
  show("xreadgroup bob") { c.xreadgroup("g", "bob", "s", ">", count: 1) }
  show("history") { c.xreadgroup("g", "ann", "s", "0") }
  show("xpending") { c.xpending("s", "g") }
  show("xpending range") { c.xpending("s", "g", "-", "+", 10).map { |e| e.values_at("entry_id", "consumer", "count") } }
  show("xack") { c.xack("s", "g", "1-0", "6-0") }
  show("xclaim") { c.xclaim("s", "g", "bob", 0, "2-0") }
  show("xclaim justid") { c.xclaim("s", "g", "bob", 0, "3-0", justid: true) }
  show("xautoclaim") { c.xautoclaim("s", "g", "eve", 0, "0-0", count: 2) }
  show("xinfo") { c.xinfo(:consumers, "s", "g").map { |row| row.values_at("name", "pending") } }
  show("delconsumer") { c.xgroup(:delconsumer, "s", "g", "eve") }
  show("destroy") { c.xgroup(:destroy, "s", "g") }
  show("no group") { c.xreadgroup("g", "ann", "s", ">") }
end

def blocking(port)
  c = fresh(port)
  waits = -> { c.info("clients")["blocked_clients"] == "1" }
  reading = Thread.new { connect(port).xread("s", "$", block: 20_000) }
  wait_until(&waits)
  c.xadd("s", { n: 1 }, id: "1-0")
  show("xread") { reading.value }
  c.xgroup(:create, "s", "g", "$")
  reading = Thread.new { connect(port).xreadgroup("g", "ann", "s", ">", block: 20_000) }
  wait_until(&waits)
  c.xadd("s", { n: 2 }, id: "2-0")
  show("xreadgroup") { reading.value }
  show("time is over") { c.xread("s", "$", block: 10) }
end

def transactions(port)
  c = fresh(port)
  show("multi") { c.multi { |m| m.set("k", 1); m.incr("k"); m.xadd("s", { n: 1 }, id: "1-0"); m.xlen("s") } }
  show("failing") { c.multi { |m| m.set("k", "x"); m.incr("k"); m.get("k") } }
  show("watched") do
    c.watch("k") do
      connect(port).set("k", "changed")
      c.multi { |m| m.set("k", "mine") }
    end
  end
  show("pipelined") { c.pipelined { |p| p.get("k"); p.xlen("s"); p.xrange("s") } }
end

def pubsub(port)
  c = fresh(port)
  heard = []
  listening = Thread.new do
    connect(port).subscribe("news") do |on|
      on.message do |channel, message|
        heard << [channel, message]
        Thread.exit if message == "last"
      end
    end
  end
  wait_until { c.pubsub("channels") == ["news"] }
  show("publish") { [c.publish("news", "a"), c.publish("x", "b"), c.publish("news", "last")] }
  listening.join(20)
  show("heard") { heard }
end

def scripts(port)
  c = fresh(port)
  once = "if redis.call('SET', KEYS[1], 1, 'NX') then return redis.call('XADD', KEYS[2], ARGV[1], 'n', 1) end return false"
  show("eval") { [c.eval(once, %w[lock s], ["1-0"]), c.eval(once, %w[lock s], ["2-0"])] }
  show("evalsha") { c.evalsha(c.script(:load, "return {1, 'two', {ARGV[1]}, 5}"), argv: ["x"]) }
  show("unknown") { c.evalsha("0" * 40) }
end

$stdout.sync = true
port, *parts = ARGV
parts.each do |part|
  puts "== #{part}"
  begin
    send(part, Integer(port))
  rescue StandardError => e
    puts JSON.generate(["failed", e.message])
  end
end
