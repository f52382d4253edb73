"""Word lists for planning: verbs, nouns without meaning, and names of parameters."""


def _split_words(text: str) -> frozenset[str]:
    return frozenset(text.split())


VAGUE = _split_words("""
    value values data type types kind status state result results object item items entry entries
    record records info information detail details response output total count version node nodes
    field fields config options params parameters args arguments source target mode format action
    success error errors ok meta metadata enabled user_id properties attributes model method domain
    description
""")
"""Names that half of all tools have: two of them being the same says nothing."""

CONTROLS = _split_words("""
    limit offset page cursor token per size max min sort order direction format verbose verbosity
    timeout fields include exclude filter filters expand dry force recursive encoding indent strict
    debug locale language lang timezone skip take start_index top depth count num results
""")
"""Parameters that steer how an answer is given: no other tool's output is meant for them."""

READS = _split_words("""
    list get search find fetch read query lookup look retrieve show describe view browse check count
    export explore discover scan inspect download load select resolve extract calculate compute
    convert validate analyze analyse summarize compare
""")

DOES = _split_words("""
    create update delete add remove set post send put patch insert upsert write edit move copy
    rename start stop run execute cancel close open enable disable attach detach upload assign merge
    push publish reply forward archive restore approve reject invite generate make build deploy
    trigger retry sync import save store mark tag api tool batch bulk new all by for of in to from
    with and or the a an my
""")

CHANGES = _split_words("""
    create update delete add remove set post send put patch insert upsert write edit move rename
    execute cancel push publish reply archive approve reject
""")

VERBS = _split_words("""
    add aggregate analyse analyze append apply approve archive ask assign attach book browse build
    calculate call cancel capture chart check classify click clone close collect comment commit
    compare compile compose compute convert copy count crawl create cross-post deploy delete
    describe detect diff disable display do download draft draw drop edit email enable estimate
    evaluate execute explain export extract fetch figure file filter find fix follow fork forward
    gather generate get give go grab identify import insert inspect install invite keep label launch
    let list load locate log look mail make mark measure merge message monitor move navigate notify
    obtain open optimize parse pause pay ping pin plot post predict prepare print process produce
    publish pull push put query rank react read rebuild record redeploy refund register remember
    remind remove rename render reopen reply report request resolve restart restore resume retrieve
    return review revoke roll route run save scale scan schedule scrape search see select send set
    share show sign snapshot sort split start stop store subscribe submit sum summarise summarize
    switch sync tag take tell test text track transcribe transfer transition translate trigger turn
    tweet unassign unlock update upload upsert use validate verify view visit visualise visualize
    wait watch work write suche such finde hole lies liste zeige erstelle sende schicke schreibe
    speichere lösche aktualisiere prüfe cherche trouve récupère lis montre crée envoie écris
    enregistre supprime publie busca encuentra obtén lee lista muestra crea envía escribe guarda
    borra publica
""")

ADVERBS = _split_words("""
    also finally next now please afterwards later immediately just lastly
""")

ASKS = _split_words("""
    which what who whom whose where when why how whether welche welcher welches wie quels quelles
    cuáles cuántos
""")
"""Words that begin a question."""

NOT_REPOS = _split_words("""
    and/or his/her he/she and/and either/or input/output read/write yes/no n/a w/o km/h tcp/ip
""")

NOT_FILES = _split_words("""
    e.g i.e etc.
""")

SITES = _split_words("""
    com org net io dev ai co app eu de uk fr
""")

LIMITS = _split_words("""
    limit count num number results size perpage pagesize maxresults n k top
""")

STEERS = _split_words("""
    sort order direction format output mode detail level type view response verbosity
""")

PLACES = _split_words("""
    city location place address country destination region town area origin
""")

SYMBOLS = _split_words("""
    symbol symbols ticker tickers stock
""")

OWNERS = _split_words("""
    owner org organization organisation username workspace namespace
""")

FROM = _split_words("""
    source src from origin old start since after begin begins
""")

TO = _split_words("""
    destination dest target to new output end until before finish
""")
