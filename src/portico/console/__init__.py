"""The console: pages for people, in the browser, over the REST API.

files: the files of `static/`, as they are served
static: modules of the browser, without a build step; `static/third_party` has those of others
"""
