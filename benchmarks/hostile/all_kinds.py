"""Every kind of hostile input there is."""

from benchmarks.hostile import answers, costs, floors, requests, schemas, texts

KINDS = (*schemas.KINDS, *costs.KINDS, *requests.KINDS, *answers.KINDS, *texts.KINDS)
BY_NAME = {kind.name: kind for kind in (*KINDS, *floors.KINDS)}
