// Reads the head of a plain HTTP/1.1 request. What is plain is told in fastfront/fast/head.py.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace fastfront {

class Head {
 public:
  struct Field {
    std::string_view name;
    std::string_view value;
  };
  static constexpr size_t kMaxFields = 64;

  std::string_view method;
  std::string_view target;
  std::string_view path;
  std::string_view query;
  Field fields[kMaxFields];
  size_t count;
  uint64_t length;  // of the body
  bool keep_alive;
  size_t size;  // with the empty line

  // Whether `text` begins with a plain head, which is then in the members.
  bool read(std::string_view text) {
    at_ = text.data();
    end_ = at_ + text.size();
    count = length = 0;
    keep_alive = true;
    if (!request_line()) return false;
    bool host = false;
    while (at_ < end_ && *at_ != '\r') {
      if (count == kMaxFields || !field(fields[count]) || !known(fields[count], host)) return false;
      count++;
    }
    if (!take("\r\n")) return false;
    size = at_ - text.data();
    return host;
  }

 private:
  enum Class : uint8_t { kName = 1, kTarget = 2, kValue = 4 };

  static constexpr std::array<uint8_t, 256> classes() {
    std::array<uint8_t, 256> table{};
    for (int c = ' '; c <= '~'; c++) {
      bool alnum = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
      uint8_t classes = kValue;
      if (alnum || c == '-' || c == '_') classes |= kName;
      if (alnum || std::string_view("!$&'()*+,-./:;=@_~").find(static_cast<char>(c)) != std::string_view::npos) {
        classes |= kTarget;
      }
      table[c] = classes;
    }
    return table;
  }

  static bool is(char c, Class kind) {
    static constexpr std::array<uint8_t, 256> table = classes();
    return table[static_cast<uint8_t>(c)] & kind;
  }

  std::string_view run(Class kind) {
    const char* begin = at_;
    while (at_ < end_ && is(*at_, kind)) at_++;
    return {begin, static_cast<size_t>(at_ - begin)};
  }

  bool take(std::string_view text) {
    if (static_cast<size_t>(end_ - at_) < text.size() || memcmp(at_, text.data(), text.size()) != 0) return false;
    at_ += text.size();
    return true;
  }

  bool request_line() {
    const char* begin = at_;
    if (take("POST ") || take("GET ") || take("HEAD ") || take("PUT ") || take("DELETE ") || take("OPTIONS ")) {
      method = {begin, static_cast<size_t>(at_ - begin - 1)};
    } else {
      return false;
    }
    begin = at_;
    path = run(kTarget);
    if (path.empty() || path[0] != '/') return false;
    query = take("?") ? query_rest() : std::string_view();
    target = {begin, static_cast<size_t>(at_ - begin)};
    return take(" HTTP/1.1\r\n");
  }

  std::string_view query_rest() {
    const char* begin = at_;
    while (at_ < end_ && (is(*at_, kTarget) || *at_ == '?' || *at_ == '%')) at_++;
    return {begin, static_cast<size_t>(at_ - begin)};
  }

  bool field(Field& field) {
    field.name = run(kName);
    if (field.name.empty() || !take(":")) return false;
    while (at_ < end_ && *at_ == ' ') at_++;
    field.value = run(kValue);
    return !field.value.empty() && field.value.back() != ' ' && take("\r\n");
  }

  // `lower` is lower case.
  static bool same(std::string_view text, std::string_view lower) {
    if (text.size() != lower.size()) return false;
    for (size_t i = 0; i < text.size(); i++) {
      char c = text[i] >= 'A' && text[i] <= 'Z' ? text[i] + 32 : text[i];
      if (c != lower[i]) return false;
    }
    return true;
  }

  // Minds what frames the message; false for what is not plain.
  bool known(const Field& field, bool& host) {
    switch (field.name.size()) {
      case 4:
        host = host || same(field.name, "host");
        return true;
      case 6:
        return !same(field.name, "expect");
      case 7:
        return !same(field.name, "upgrade");
      case 10:
        if (!same(field.name, "connection")) return true;
        if (same(field.value, "keep-alive")) return true;
        keep_alive = false;
        return same(field.value, "close");
      case 14:
        return !same(field.name, "content-length") || number(field.value);
      case 16:
        return !same(field.name, "proxy-connection");
      case 17:
        return !same(field.name, "transfer-encoding");
      default:
        return true;
    }
  }

  bool number(std::string_view digits) {
    if (digits.size() > 15) return false;
    length = 0;
    for (char digit : digits) {
      if (digit < '0' || digit > '9') return false;
      length = length * 10 + (digit - '0');
    }
    return true;
  }

  const char* at_;
  const char* end_;
};

}  // namespace fastfront
