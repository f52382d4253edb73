"""Synonyms people use when asking for a tool: `remove` for `delete`, `repo` for `repository`.

Each line is one concept. A document that has any word of a line is also indexed under the concept,
and a query word looks for itself and its concepts: one more list to read, however many words a line
has. General technical words only; product names only where they are abbreviations.
"""

from collections.abc import Iterator

from portico.search.lexical.tokens import stem

CONCEPT_PREFIX = "~"
"""Prefix of a concept's term; no term from text can start with it."""

_SYNONYM_LINES = """
delete remove drop erase destroy purge clear wipe discard
create add new make insert generate
list show enumerate display view
get fetch retrieve read obtain
update edit modify change alter patch rewrite adjust
search find query lookup discover locate
send post submit deliver
run execute invoke launch start trigger kick
stop terminate kill cancel halt abort end
enable activate
disable deactivate
allow permit grant authorize
block ban deny forbid
close resolve complete finish
assign attach link connect associate
detach unlink disconnect unassign
rename move relocate transfer
copy duplicate clone replicate
merge combine join union
split divide separate
compare diff difference delta
count number total amount
sort order rank
check verify validate test inspect examine
analyze analyse analysis inspect examine
monitor watch track observe
calculate compute evaluate
convert transform translate
summary summarize summarise overview digest
explain describe description detail info information
replace swap substitute
restore recover revert undo rollback
pause suspend mute silence snooze
resume unpause unmute continue
subscribe follow
share publish
approve accept confirm
reject decline dismiss
upload import ingest load
download export save
install setup
deploy deployment release ship rollout
build compile
schedule plan
draw render plot sketch
file document doc
folder directory dir
repo repository
db database
issue ticket bug task
incident outage alert alarm
message msg chat dm
comment remark note reply
image picture photo pic
chart graph plot diagram visualization
email mail inbox
user member account person people
team group
customer client contact
price cost pricing spend expense
invoice bill billing
payment charge pay
error exception failure fault crash problem
history past previous
event meeting appointment calendar
date day time
forecast prediction
weather temperature climate
stock share equity ticker
config configuration setting preference option
env environment
k8s kubernetes kube
tf terraform
js javascript
ts typescript
py python
pg postgres postgresql
es elasticsearch
mongo mongodb
gh github
gql graphql
auth authentication login signin credential
secret credential key token password
permission access role privilege right
package pkg library lib module dependency
documentation doc guide manual reference
spreadsheet excel xlsx workbook worksheet sheet tab
word docx
powerpoint pptx slide presentation deck
column field attribute property
row record entry item
website webpage page site web
url link address
screenshot capture snapshot
location place position coordinate
route direction path itinerary
near nearby around
machine server host instance vm
container docker pod
queue topic
function lambda
bucket storage
branch ref
commit revision change
pipeline workflow ci build job
label tag category
reaction emoji
status state condition health
metric stat statistic measure
dashboard board panel
latest recent newest last
schema structure definition layout
size length dimension
video clip movie film
music song audio track
voice speech
news article headline
paper publication study research
recipe dish meal food
flight airline plane
hotel accommodation stay lodging
crypto cryptocurrency coin
company business organization organisation firm
certificate cert ssl tls
sms text
form survey questionnaire
font typeface style format
subtask child nested
limit quota cap
quote citation cite
"""


def _iterate_concepts() -> Iterator[tuple[str, str]]:
    for line in _SYNONYM_LINES.split("\n"):
        if members := line.split():
            for word in members:
                yield stem(word), CONCEPT_PREFIX + members[0]


def _group_by_term() -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for term, concept in _iterate_concepts():
        if concept not in found.get(term, ()):
            found[term] = (*found.get(term, ()), concept)
    return found


CONCEPTS = _group_by_term()
"""Concepts of each term. Built on import, in well under a millisecond."""

ALL_CONCEPTS = tuple(
    dict.fromkeys(concept for concepts in CONCEPTS.values() for concept in concepts)
)
