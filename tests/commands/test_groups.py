"""XGROUP: changes, recorded effects, and invalidated watches."""

NO_KEY = (
    "-ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use"
    " the MKSTREAM option to create an empty stream automatically."
)
NO_GROUP = "-NOGROUP No such consumer group 'nobody' for key name 's'"


def wrong_words(subcommand):
    return f"-ERR unknown subcommand or wrong number of arguments for '{subcommand}'. Try XGROUP HELP."


def test_a_change_of_a_group_is_recorded_as_it_was_requested(grouped):
    told = [
        "XGROUP CREATE s h $",
        "XGROUP SETID s h - ENTRIESREAD 2",
        "XGROUP CREATECONSUMER s g ann",
        "XGROUP DELCONSUMER s g ann",
        "XGROUP DESTROY s h",
        "XGROUP CREATE t g $ MKSTREAM",
    ]
    for line in told:
        assert grouped(line) in ("OK", 0, 1)
    assert grouped.effects() == told


def test_a_request_that_changes_nothing_is_not_recorded(grouped):
    grouped("XGROUP CREATECONSUMER s g ann")
    grouped.effects()
    assert grouped("XGROUP CREATECONSUMER s g ann") == 0
    assert grouped("XGROUP DELCONSUMER s g nobody") == 0
    assert grouped("XGROUP DESTROY s nobody") == 0
    assert grouped("XGROUP CREATE s g 0") == "-BUSYGROUP Consumer Group name already exists"
    assert grouped.effects() == []


def test_only_a_created_stream_invalidates_watches(grouped):
    for line, answer in (
        ("XGROUP CREATE s h 0 MKSTREAM", ["PONG"]),
        ("XGROUP CREATE new g 0 MKSTREAM", "nil-array"),
    ):
        grouped("WATCH s new")
        grouped(line, client="b")
        grouped("MULTI")
        grouped("PING")
        assert grouped("EXEC") == answer


def test_a_bad_id_makes_no_stream(talk):
    assert talk("XGROUP CREATE s g x MKSTREAM").startswith("-ERR Invalid stream ID")
    assert talk("EXISTS s") == 0


def test_a_stream_made_for_a_group_remembers_producers_as_the_settings_say(talk):
    talk("CONFIG SET stream-idmp-duration 7")
    talk("XGROUP CREATE s g 0 MKSTREAM")
    assert talk("XINFO STREAM s")[14:16] == ["idmp-duration", 7]


def test_a_missing_key_is_said_after_wrong_words_and_before_a_missing_group(grouped):
    assert grouped("XGROUP CREATE none g x FOO") == wrong_words("CREATE")
    assert grouped("XGROUP sETID s g 0 MKSTREAM") == wrong_words("sETID")
    assert grouped("XGROUP CREATE none g x") == NO_KEY
    for words in ("SETID none nobody 0", "DESTROY none nobody", "DELCONSUMER none nobody c"):
        assert grouped(f"XGROUP {words}") == NO_KEY
    for words in ("SETID s nobody x", "CREATECONSUMER s nobody c", "DELCONSUMER s nobody c"):
        assert grouped(f"XGROUP {words}") == NO_GROUP


def test_a_read_counter_is_cut_to_what_was_added(grouped):
    grouped("XGROUP SETID s g 2 ENTRIESREAD 50")
    assert grouped("XINFO GROUPS s")[0][8:] == ["entries-read", 3, "lag", 0]


def test_a_consumer_takes_its_pending_entries_with_it(grouped):
    grouped("XREADGROUP GROUP g ann COUNT 2 STREAMS s >")
    assert grouped("XGROUP DELCONSUMER s g ann") == 2
    assert grouped("XPENDING s g") == [0, None, None, "nil-array"]


def test_a_group_takes_everything_with_it(grouped):
    grouped("XREADGROUP GROUP g ann STREAMS s >")
    assert grouped("XGROUP DESTROY s g") == 1
    grouped("XGROUP CREATE s g $")
    assert grouped("XINFO CONSUMERS s g") == []
    assert grouped("XPENDING s g")[0] == 0


def test_help_lists_every_subcommand(talk):
    lines = talk("XGROUP HELP")
    assert lines[0].startswith("XGROUP <subcommand>") and lines[-2:] == ["HELP", "    Prints this list."]
    named = {line.split()[0] for line in lines[1:] if not line.startswith(" ")}
    assert named == {"CFGSET", "CREATE", "CREATECONSUMER", "DELCONSUMER", "DESTROY", "SETID", "HELP"}


def test_keys_are_named(talk):
    assert talk("COMMAND GETKEYS XGROUP CREATE s g 0") == ["s"]
    assert talk("COMMAND GETKEYS XACKDEL s g IDS 1 1") == ["s"]
