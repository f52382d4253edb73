"""Every kind of hostile input there is."""

from benchmarks.hostile import answers, floors, requests, schemas

KINDS = (*schemas.KINDS, *requests.KINDS, *answers.KINDS)
BY_NAME = {kind.name: kind for kind in (*KINDS, *floors.KINDS)}
