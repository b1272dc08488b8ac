# SPDX-License-Identifier: BSD-3-Clause
"""usage: mutate_gpu.py TREE [FOLDER]

Finds the places in TREE that order the work of a GPU, and prints a line for each: number, FILE:LINE, kind, `cited` or
`-`, and the code, with tabs between. With FOLDER, it writes the files there, where each place is a mutation: a process
that begins with LOCKSTEP_MUTATION=NUMBER runs without it. A place is cited where a comment at it names the fake GPU:
the comment says which rule needs the place, and why the fake GPU cannot show it.
"""

import pathlib
import re
import sys

FILES = [
    "mpi/gpu/**/*.cpp",
    "src/parallel/**/*.cpp",
    "src/optim/grad_scaler.cpp",
    "src/optim/update/live_numbers.cpp",
    "src/batch/late_values.cpp",
    "src/engine/loop/captured_step.cpp",
    "src/embed/session_streams.cpp",
]
# Lanes and a thread that gathers exist for the collectives of CPUs alone.
CPU_ONLY = re.compile(r"/lane_|wait\(lock")

CURRENT_STREAM = "c10::impl::VirtualGuardImpl(({0}).device_type()).getStream(({0}).device())"

# Kind, pattern, and what replaces the code; {0} is what a call is given. A pattern ends before the call's arguments, or
# is the whole code.
STATEMENTS = [
    ("wait", r"check\((?=cudaStreamWaitEvent|api\(\)\.(?:await|follow_event)\()", "void()"),
    ("wait", r"\b(?:wait|await)\(", "static_cast<void>({0})"),
    ("wait", r"\b(?:block|follow|follow_current_stream|follow_brought_back|await_brought_back)\(", "void()"),
    ("wait", r"(?<!\.)\b(?:settle\((?!staging)|end_launch\()", "void()"),
    ("record", r"check\((?=cudaEventRecord|api\(\)\.mark\()", "void()"),
    ("record", r"\brecord\((?=[^;]*[sS]tream)", "void()"),
    ("record", r"\brecord_stream\(", "void()"),
    ("query", r"\bcudaGetLastError\(", "void()"),
    ("synchronization", r"check\((?=cuda\w*Synchronize)", "void()"),
    ("synchronization", r"\bsynchronize\(", "void()"),
    ("stream", r"\bsetCurrentCUDAStream\(", "void()"),
]
VALUES = [
    ("wait", r"(?<=return )api\(\)\.follow\(", "nullptr"),
    ("query", r"\bcudaEventQuery\(", "cudaSuccess"),
    ("query", r"\bquery\(", "true"),
    ("capture", r"(?<=if \()order_ != nullptr(?=\) return)", "false"),
    ("capture", r"\bcudaStreamCaptureModeThreadLocal\b", "cudaStreamCaptureModeGlobal"),
]
ARGUMENTS = [("stream", r"\bStreamGuard \w+\(", CURRENT_STREAM)]

SWITCH = """\
#ifndef LOCKSTEP_MUTATION
#define LOCKSTEP_MUTATION
#include <cstdlib>
inline bool lockstep_mutation(int number) {
  static const char* const chosen = std::getenv("LOCKSTEP_MUTATION");
  return chosen != nullptr && std::atoi(chosen) == number;
}
#endif
#line 1
"""


class Place:
    """A part of a text, the kind of its mutation, and the code that replaces it, where {n} is the number."""

    def __init__(self, begin, end, kind, code):
        self.begin, self.end, self.kind, self.code = begin, end, kind, code


def end_of_call(text, at):
    """The position behind the parenthesis that closes the last one before `at`."""
    depth = 1
    while depth > 0:
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        at += 1
    return at


def begin_of_chain(text, at):
    """Where the expression begins that ends at `at`, such as a::b[c]->d(e).f"""
    depth = 0
    while at > 0:
        if text[at - 1] in ")]":
            depth += 1
        elif depth > 0:
            depth -= text[at - 1] in "(["
        elif text.endswith("->", 0, at):
            at -= 1
        elif not re.match(r"[\w.:*]", text[at - 1]):
            break
        at -= 1
    return at


def is_statement(text, begin, end):
    return text[end] == ";" and re.search(r"([{};)]|\breturn|//.*\n)\s*$", text[:begin])


def candidates(text):
    for kind, pattern, instead in VALUES + STATEMENTS:
        for match in re.finditer(pattern, text):
            is_call = match.group().endswith("(")
            begin = begin_of_chain(text, match.start()) if is_call else match.start()
            end = end_of_call(text, match.end()) if is_call else match.end()
            nothing = instead.format(text[match.end() : end - 1])
            code = text[begin:end]
            if (kind, pattern, instead) in VALUES:
                yield Place(begin, end, kind, f"(lockstep_mutation({{n}}) ? {nothing} : {code})")
            elif is_statement(text, begin, end):
                yield Place(begin, end, kind, f"(lockstep_mutation({{n}}) ? {nothing} : static_cast<void>({code}))")
    for kind, pattern, instead in ARGUMENTS:
        for match in re.finditer(pattern, text):
            begin, end = match.end(), end_of_call(text, match.end()) - 1
            given = text[begin:end]
            yield Place(begin, end, kind, f"lockstep_mutation({{n}}) ? {instead.format(given)} : {given}")


def places_of(name, text):
    """The places of a file, in their order. Of those inside each other, the one that an earlier row finds counts."""
    found = []
    for place in candidates(text):
        line_begin = text.rfind("\n", 0, place.begin) + 1
        line = text[line_begin : text.find("\n", place.begin)]
        is_comment = "//" in text[line_begin : place.begin]
        is_known = any(place.begin < other.end and other.begin < place.end for other in found)
        if not is_comment and not is_known and not CPU_ONLY.search(f"/{name}: {line}"):
            found.append(place)
    return sorted(found, key=lambda place: place.begin)


def is_cited(lines, number):
    """Whether the comment in a line, or right above it, names the fake GPU."""
    first = number
    while first > 0 and lines[first - 1].lstrip().startswith("//"):
        first -= 1
    return any("fake GPU" in line[line.find("//") :] for line in lines[first : number + 1] if "//" in line)


def mutated(text, places, first_number):
    parts, after = [SWITCH], 0
    for number, place in enumerate(places, first_number):
        parts += [text[after : place.begin], place.code.replace("{n}", str(number))]
        after = place.end
    return "".join(parts) + text[after:]


def main(tree, folder=None):
    number = 0
    for path in [path for pattern in FILES for path in sorted(pathlib.Path(tree).glob(pattern))]:
        name = path.relative_to(tree)
        text = path.read_text()
        places = places_of(name, text)
        if places and folder:
            target = pathlib.Path(folder, name)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(mutated(text, places, number + 1))
        lines = text.split("\n")
        for place in places:
            number += 1
            at = text.count("\n", 0, place.begin)
            cited = "cited" if is_cited(lines, at) else "-"
            print(number, f"{name}:{at + 1}", place.kind, cited, lines[at].strip(), sep="\t")


main(*sys.argv[1:])
