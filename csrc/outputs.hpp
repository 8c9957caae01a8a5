// Walks one EngineCoreOutputs message (wire d.7, d.8) in place. What is seldom there stays a slice of the message.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "msgpack.hpp"

namespace fastfront {

// One EngineCoreOutput; the views point into the message.
struct Output {
  std::string_view request_id;
  std::vector<int64_t> token_ids;  // kept from output to output, so that it is allocated once
  int finish_reason = -1;
  bool has_stop_id = false;
  int64_t stop_id = 0;
  bool has_stop_text = false;
  std::string_view stop_text;
  std::string_view raw;  // all of it, if a field that is seldom there is set; else empty
};

class OutputWalker {
 public:
  explicit OutputWalker(std::string_view message) : in_(message) {
    fields_ = in_.array();
    if (!in_.ok() || fields_ < 2) {
      wrong("an output message is not an array of 2 or more");
      return;
    }
    engine_index_ = in_.integer();
    if (!in_.ok()) {
      wrong("engine_index is not an integer");
      return;
    }
    left_ = in_.array();
    if (!in_.ok()) wrong("outputs is not an array");
  }

  int64_t engine_index() const { return engine_index_; }
  const char* error() const { return error_; }  // nullptr while all is well
  size_t offset() const { return in_.offset(); }

  // The next output into `out`; false at the end of the outputs or at an error.
  bool next(Output& out) {
    if (error_ || left_ == 0) return false;
    --left_;
    const size_t start = in_.offset();
    const uint32_t fields = in_.array();
    if (!in_.ok() || fields < 2) return wrong("an output is not an array of 2 or more");
    out.request_id = in_.string();
    if (!in_.ok()) return wrong("request_id is not a string");
    const uint32_t ids = in_.array();
    if (!in_.ok()) return wrong("new_token_ids is not an array");
    out.token_ids.clear();
    for (uint32_t n = 0; n < ids; ++n) out.token_ids.push_back(in_.integer());
    if (!in_.ok()) return wrong("a token id is not an integer");
    out.finish_reason = -1;
    out.has_stop_id = out.has_stop_text = false;
    bool rare = false;
    for (uint32_t place = 2; place < fields; ++place) {
      if (in_.take_nil()) continue;
      if (place == kFinishReason) {
        const int64_t finish = in_.integer();
        if (!in_.ok() || finish < 0 || finish > 4) return wrong("finish_reason is not 0 to 4");
        out.finish_reason = static_cast<int>(finish);
      } else if (place == kStopReason) {
        if (in_.next_is_string()) {
          out.stop_text = in_.string();
          out.has_stop_text = true;
        } else {
          out.stop_id = in_.integer();
          out.has_stop_id = true;
        }
        if (!in_.ok()) return wrong("stop_reason is neither an integer nor a string");
      } else {
        in_.skip();
        rare = rare || place != kNumNans;
        if (!in_.ok()) return wrong("a field of an output is not msgpack");
      }
    }
    out.raw = rare ? in_.since(start) : std::string_view();
    return true;
  }

  // After the outputs: field `place` (2 to 8) as a slice, empty where nil or absent. Ask in rising order.
  std::string_view field(uint32_t place) {
    if (error_ || place >= fields_) return {};
    if (in_.take_nil()) return {};
    const size_t start = in_.offset();
    in_.skip();
    if (!in_.ok()) {
      wrong("a field of an output message is not msgpack");
      return {};
    }
    return in_.since(start);
  }

  // Of a slice that `field` gave: its integer; an error if it is none.
  int64_t integer(std::string_view slice) {
    Reader reader(slice);
    const int64_t value = reader.integer();
    if (!reader.ok()) wrong("a wave is not an integer");
    return value;
  }

  // Whether the rest of a message says nothing: no field but the engine's clock and the weights' version. Ask after the
  // outputs; it moves nothing.
  bool says_nothing_more() const {
    if (error_) return false;
    Reader rest = in_;
    for (uint32_t place = 2; place < fields_; ++place) {
      if (rest.take_nil()) continue;
      if (place != kClock && place < kFields - 1) return false;
      rest.skip();
    }
    return rest.ok() && rest.at_end();
  }

  // After the fields that are known: whatever newer engines add, and then nothing.
  void end() {
    if (error_) return;
    for (uint32_t place = kFields; place < fields_; ++place) in_.skip();
    if (!in_.ok()) {
      wrong("a field of an output message is not msgpack");
    } else if (!in_.at_end()) {
      wrong("bytes after an output message");
    }
  }

 private:
  static constexpr uint32_t kFinishReason = 5;
  static constexpr uint32_t kStopReason = 6;
  static constexpr uint32_t kNumNans = 13;
  static constexpr uint32_t kClock = 3;
  static constexpr uint32_t kFields = 9;

  bool wrong(const char* what) {
    error_ = what;
    return false;
  }

  Reader in_;
  uint32_t fields_ = 0;
  uint32_t left_ = 0;
  int64_t engine_index_ = -1;
  const char* error_ = nullptr;
};

}  // namespace fastfront
