<?php
// php-redis (the extension phpredis).

function show(string $name, callable $work): void
{
    try {
        $result = $work();
    } catch (RedisException $error) {
        $result = 'error: ' . $error->getMessage();
    }
    echo json_encode([$name, $result], JSON_UNESCAPED_SLASHES | JSON_INVALID_UTF8_SUBSTITUTE), "\n";
}

function connect(int $port): Redis
{
    $redis = new Redis();
    $redis->connect('127.0.0.1', $port, 20.0);
    $redis->setOption(Redis::OPT_READ_TIMEOUT, 20);
    return $redis;
}

function fresh(int $port): Redis
{
    $redis = connect($port);
    $redis->flushAll();
    return $redis;
}

// The reply, or the error that phpredis keeps beside a false.
function answer(Redis $redis, $reply)
{
    $error = $redis->getLastError();
    $redis->clearLastError();
    return $error ?? $reply;
}

function streams(int $port): void
{
    $c = fresh($port);
    for ($n = 1; $n <= 6; $n++) {
        show('xAdd', fn() => $c->xAdd('s', "$n-0", ['n' => "$n", 'text' => "entry $n"]));
    }
    show('xAdd again', fn() => answer($c, $c->xAdd('s', '6-0', ['n' => '6'])));
    show('xAdd trimming', fn() => $c->xAdd('s', '7-0', ['n' => '7'], 6));
    show('xLen', fn() => $c->xLen('s'));
    show('xRange', fn() => $c->xRange('s', '2-0', '+', 2));
    show('xRevRange', fn() => $c->xRevRange('s', '+', '-', 2));
    show('xRead', fn() => $c->xRead(['s' => '5-0', 'none' => '0']));
    show('xRead nothing', fn() => $c->xRead(['s' => '$']));
    show('xDel', fn() => $c->xDel('s', ['3-0', '99-0']));
    show('xTrim', fn() => $c->xTrim('s', 2));
    show('xInfo', function () use ($c) {
        $info = $c->xInfo('STREAM', 's');
        return [$info['length'], $info['groups'], $info['last-generated-id'], $info['first-entry']];
    });
    show('wrong type', fn() => [$c->set('k', 'v'), answer($c, $c->xLen('k'))]);
}

function groups(int $port): void
{
    $c = fresh($port);
    show('create', fn() => $c->xGroup('CREATE', 's', 'g', '0', true));
    show('create again', fn() => answer($c, $c->xGroup('CREATE', 's', 'g', '0')));
    for ($n = 1; $n <= 6; $n++) {
        $c->xAdd('s', "$n-0", ['n' => "$n"]);
    }
    show('xReadGroup', fn() => $c->xReadGroup('g', 'ann', ['s' => '>'], 3));
    show('xReadGroup bob', fn() => $c->xReadGroup('g', 'bob', ['s' => '>'], 1));
    show('history', fn() => $c->xReadGroup('g', 'ann', ['s' => '0']));
    show('xPending', fn() => $c->xPending('s', 'g'));
    show('xPending range', fn() => array_map(fn($e) => [$e[0], $e[1], $e[3]], $c->xPending('s', 'g', '-', '+', 10)));
    show('xAck', fn() => $c->xAck('s', 'g', ['1-0', '6-0']));
    show('xClaim', fn() => $c->xClaim('s', 'g', 'bob', 0, ['2-0'], []));
    show('xClaim justid', fn() => $c->xClaim('s', 'g', 'bob', 0, ['3-0'], ['JUSTID']));
    show('xAutoClaim', fn() => $c->rawCommand('XAUTOCLAIM', 's', 'g', 'eve', '0', '0-0', 'COUNT', '2'));
    show('xInfo', fn() => array_map(fn($x) => [$x['name'], $x['pending']], $c->xInfo('CONSUMERS', 's', 'g')));
    show('delconsumer', fn() => $c->xGroup('DELCONSUMER', 's', 'g', 'eve'));
    show('destroy', fn() => $c->xGroup('DESTROY', 's', 'g'));
    show('no group', fn() => answer($c, $c->xReadGroup('g', 'ann', ['s' => '>'])));
}

function blocking(int $port): void
{
    $c = fresh($port);
    $c->xAdd('s', '1-0', ['n' => '1']);
    $c->xGroup('CREATE', 's', 'g', '0');
    show('xRead', fn() => $c->xRead(['s' => '0'], 10, 1000));
    show('time is over', fn() => $c->xRead(['s' => '$'], 10, 10));
    show('xReadGroup', fn() => $c->xReadGroup('g', 'ann', ['s' => '>'], 10, 1000));
    show('time is over', fn() => $c->xReadGroup('g', 'ann', ['s' => '>'], 10, 10));
}

function transactions(int $port): void
{
    $c = fresh($port);
    show('multi', fn() => $c->multi()->set('k', '1')->incr('k')->xAdd('s', '1-0', ['n' => '1'])->xLen('s')->exec());
    show('failing', fn() => $c->multi()->set('k', 'x')->incr('k')->get('k')->exec());
    $c->clearLastError();
    $c->watch('k');
    connect($port)->set('k', 'changed');
    show('watched', fn() => $c->multi()->set('k', 'mine')->exec());
    show('pipeline', fn() => $c->pipeline()->get('k')->xLen('s')->xRange('s', '-', '+')->exec());
}

function pubsub(int $port): void
{
    fresh($port);
    $heard = [];
    // subscribe() blocks until the callback closes the connection; another process publishes.
    $child = proc_open([PHP_BINARY, __FILE__, "$port", 'publish'], [1 => ['file', '/dev/null', 'w']], $pipes);
    try {
        connect($port)->subscribe(['news', 'more'], function ($redis, $channel, $message) use (&$heard) {
            $heard[] = [$channel, $message];
            if ($message === 'last') {
                $redis->close();
            }
        });
    } catch (RedisException $error) { // that the connection is closed
        show('heard', fn() => $heard);
    }
    proc_close($child);
}

function publish(int $port): void
{
    $c = connect($port);
    $end = microtime(true) + 20;
    while ($c->pubsub('numsub', ['more'])['more'] < 1 && microtime(true) < $end) {
        usleep(5000);
    }
    $c->publish('news', 'a');
    $c->publish('none', 'b');
    $c->publish('more', 'last');
}

function scripts(int $port): void
{
    $c = fresh($port);
    $once = "if redis.call('SET', KEYS[1], 1, 'NX') then return redis.call('XADD', KEYS[2], ARGV[1], 'n', 1) end return false";
    show('eval', fn() => [$c->eval($once, ['lock', 's', '1-0'], 2), $c->eval($once, ['lock', 's', '2-0'], 2)]);
    show('evalSha', fn() => $c->evalSha($c->script('load', "return {1, 'two', {ARGV[1]}, 5}"), ['x'], 0));
    show('unknown', fn() => answer($c, $c->evalSha(str_repeat('0', 40))));
}

[, $port] = $argv;
foreach (array_slice($argv, 2) as $part) {
    echo "== $part\n";
    try {
        $part((int) $port);
    } catch (Throwable $error) {
        echo json_encode(['failed', $error->getMessage()]), "\n";
    }
}
