"""Every kind of hostile input there is."""

from benchmarks.hostile import answers, costs, floors, requests, schemas

KINDS = (*schemas.KINDS, *costs.KINDS, *requests.KINDS, *answers.KINDS)
BY_NAME = {kind.name: kind for kind in (*KINDS, *floors.KINDS)}
