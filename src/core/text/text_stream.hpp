// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <filesystem>
#include <fstream>
#include <locale>
#include <sstream>
#include <string>

namespace lockstep {

/// Streams of text, with the same numbers under every locale that the host program sets. Others take its decimal comma
/// and its separators of thousands.
class TextWriter : public std::ostringstream {
 public:
  TextWriter() { imbue(std::locale::classic()); }
};

class TextReader : public std::istringstream {
 public:
  explicit TextReader(const std::string& text) : std::istringstream(text) { imbue(std::locale::classic()); }
};

/// A file whose words and numbers are read. For all of its bytes, std::ifstream is enough.
class FileReader : public std::ifstream {
 public:
  explicit FileReader(const std::filesystem::path& path) : std::ifstream(path) { imbue(std::locale::classic()); }
};

}  // namespace lockstep
