# Requirements with their hashes, those of `names` (kept=1) or all others (kept=0).
BEGIN { count = split(names, listed, /[ \n]+/); for (i = 1; i <= count; i++) named[listed[i]] = 1 }
/^[a-z0-9]/ { split($1, parts, "=="); printing = ((parts[1] in named) == kept) }
/^[a-z0-9]/ || /^ / { if (printing) print }
