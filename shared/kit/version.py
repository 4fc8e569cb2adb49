"""The version of this code, as logs, metrics and the command line show it.

A test holds it equal to the project file's, so that no metadata has to be read at start.
"""

VERSION = "0.1.0"
