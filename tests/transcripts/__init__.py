"""The main stories as text: what happens, and everything that can be seen of it. Start reading in any `.txt`.

Lines that begin with `>` happen; all others are what `Job` and `Node` made of it. After a change,
`python -m tests.transcripts.rewrite` writes the files anew: commit a difference only if you can explain it.
"""
