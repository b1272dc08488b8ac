# Doxygen reads docs/api.md: the words behind the language of a block are for tests, and links to headers
# and pages become links to those that Doxygen and pandoc write.
s/^```(cpp|sh) .*/```\1/
s/^```c[+][+]/```cpp/
s#\]\(\.\./include/(lockstep/[a-z_/]*\.hpp)\)#](@ref \1)#g
s|\]\(([a-z-]*)\.md(#[a-z-]*)?\)|](../\1.html\2)|g
