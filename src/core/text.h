#pragma once
// Numbers and names as people read them.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace strata {

/// "1.23 GB" (decimal units), "512 B".
std::string human_bytes(int64_t bytes);

/// "124.4M", "20.56B", "987".
std::string human_count(double value);

/// "1 h 02 min", "3 min 05 s", "12.3 s", "840 ms".
std::string human_duration(double seconds);

/// The candidate with the least edit distance to `word`, or "" if none is near enough to suggest.
std::string nearest(std::string_view word, std::span<const std::string> candidates);

/// " (did you mean \"x\"?)" or "".
std::string did_you_mean(std::string_view word, std::span<const std::string> candidates);

}  // namespace strata
