"""Names of the files in the data folder."""

from portico.search import ENCODER_NAME

MANIFEST_FILE = "manifest.sqlite3"
RECORD_FILE = "portico.sqlite3"
HABITS_FILE = "habits.sqlite3"
RESULTS_FOLDER = "results"
INDEX_FILE = "search.index"
VECTOR_FILE = f"vectors-{ENCODER_NAME}.bin"
