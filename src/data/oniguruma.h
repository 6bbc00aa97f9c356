#pragma once
// Regular expressions in Oniguruma's dialect, in which tokenizer.json files are written, in that of PCRE2.

#include <string>
#include <string_view>

namespace strata::data {

/// The pattern as PCRE2 reads it to the same effect, with UTF, UCP and MULTILINE on. Classes keep Oniguruma's meaning (\s
/// is White_Space, \h a hexadecimal digit, {1,3}+ a repetition of a repetition). Throws an input error, opening with
/// `where`, for what has no counterpart (back references, class intersections, named classes in brackets, ...).
///
/// Not told apart: under (?i), Oniguruma also lets several characters stand for one ("ss" for U+00DF).
std::string pcre2_from_oniguruma(std::string_view pattern, std::string_view where);

}  // namespace strata::data
