"""The fetch rules: the corpus, hostile hosts on loopback, the words of refusal."""
