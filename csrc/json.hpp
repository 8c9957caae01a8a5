// JSON string escaping of text that is UTF-8 already.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace fastfront {

inline constexpr auto kEscapes = [] {
  std::array<char, 256> table{};  // 0: as it is; 'u': \u00XX; else the letter after the backslash
  for (int byte = 0; byte < 0x20; ++byte) table[byte] = 'u';
  table['\b'] = 'b';
  table['\f'] = 'f';
  table['\n'] = 'n';
  table['\r'] = 'r';
  table['\t'] = 't';
  table['"'] = '"';
  table['\\'] = '\\';
  return table;
}();

// Appends the inside of a JSON string.
inline void append_escaped(std::string_view text, std::string& out) {
  static constexpr char kHex[] = "0123456789abcdef";
  size_t clean = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    const auto byte = static_cast<uint8_t>(text[at]);
    const char escape = kEscapes[byte];
    if (!escape) continue;
    out.append(text, clean, at - clean);
    clean = at + 1;
    out.push_back('\\');
    out.push_back(escape);
    if (escape == 'u') {
      out.append("00");
      out.push_back(kHex[byte >> 4]);
      out.push_back(kHex[byte & 15]);
    }
  }
  out.append(text, clean, text.size() - clean);
}

}  // namespace fastfront
