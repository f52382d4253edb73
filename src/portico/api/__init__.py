"""THE SIDE DOOR: what the tiers show, as JSON over REST, for programs and people that do not speak
MCP.

No tool is called here. It shows what the front door's clients see, and starts a server anew for
whoever asks. The only room that knows FastAPI; `portico stdio` never loads it.

app (the application) · tools, house, restarting (routes) · params (what may be asked) · models
(what answers look like) · tiers, finding (what is shown) · fitting (as much as fits) · bodies
(rendered once, ETags) · problems (what bad input gets) · manners (what every answer has) · docs (a
page for people)
"""
