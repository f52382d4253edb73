"""OpenAPI descriptions → tool definitions and request plans.

reader            bytes of a description and its parts, bounded
parser            JSON or YAML → values; yaml_parser: YAML 1.2
documents         `$ref` resolution
operations        operations in one shape; swagger: conversion of Swagger 2.0
security_schemes  required credentials
schemas           JSON Schema 2020-12; schema_keywords, body_fields
names             tool and argument names
tools             an operation → definition and plan
loader            all of it; loader_process: large descriptions in a separate process
"""
