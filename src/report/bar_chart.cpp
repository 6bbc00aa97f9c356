#include "report/bar_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/error.h"

namespace strata::report {

namespace {

// Colours that differ in lightness as well (Okabe and Ito).
constexpr const char* colours[] = {"#bbbbbb", "#0072b2", "#56b4e9", "#d55e00",
                                   "#e69f00", "#009e73", "#cc79a7", "#f0e442"};

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '<')
      result += "&lt;";
    else if (c == '&')
      result += "&amp;";
    else
      result += c;
  }
  return result;
}

std::string text_at(double x, double y, const std::string& anchor, const std::string& text) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", x, y, anchor, escaped(text));
}

/// A round number of which some four fit into `most`.
double step_of(double most) {
  const double rough = most / 4, power = std::pow(10, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (factor * power >= rough) return factor * power;
  return 10 * power;
}

}  // namespace

std::string svg(const BarChart& chart) {
  constexpr double bar_width = 26, gap = 6, group_gap = 24, left = 60, top = 60, height = 300, bottom = 90;
  double most = 0, width = left + group_gap;
  for (const BarGroup& group : chart.groups) {
    width += static_cast<double>(group.bars.size()) * (bar_width + gap) + group_gap;
    for (const Bar& bar : group.bars) {
      STRATA_CHECK(bar.parts.size() == chart.parts.size() && bar.parts.size() <= std::size(colours));
      most = std::max({most, bar.mark, std::accumulate(bar.parts.begin(), bar.parts.end(), 0.0)});
    }
  }
  if (most <= 0) most = 1;
  const auto y_of = [&](double value) { return top + height * (1 - value / most); };
  width = std::max(width, left + 110.0 * static_cast<double>(chart.parts.size() + 1));
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{:.0f}\" height=\"{:.0f}\" font-family=\"sans-serif\" "
      "font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
      width, top + height + bottom);
  out += fmt::format("<text x=\"{:.0f}\" y=\"18\" font-size=\"14\">{}</text>\n", left, escaped(chart.title));
  double x = left;
  for (size_t part = 0; part < chart.parts.size(); ++part, x += 110) {
    out += fmt::format("<rect x=\"{:.1f}\" y=\"30\" width=\"10\" height=\"10\" fill=\"{}\"/>\n", x, colours[part]);
    out += text_at(x + 14, 39, "start", chart.parts[part]);
  }
  if (!chart.mark.empty()) {
    out += fmt::format("<path d=\"M{:.1f} 35h12\" stroke=\"black\" stroke-width=\"2\"/>\n", x);
    out += text_at(x + 16, 39, "start", chart.mark);
  }
  const double step = step_of(most);
  for (double value = 0; value <= most * 1.0001; value += step) {
    out += fmt::format("<path d=\"M{:.1f} {:.1f}H{:.1f}\" stroke=\"#dddddd\"/>\n", left, y_of(value), width - 10);
    out += text_at(left - 6, y_of(value) + 4, "end", fmt::format("{:g}", value));
  }
  out += text_at(left - 6, top - 8, "end", chart.unit);
  x = left + group_gap;
  for (const BarGroup& group : chart.groups) {
    const double begin = x;
    for (const Bar& bar : group.bars) {
      double bottom_of_part = 0;
      for (size_t part = 0; part < bar.parts.size(); ++part) {
        const double value = bar.parts[part];
        if (value > 0)
          out += fmt::format("<rect x=\"{:.1f}\" y=\"{:.2f}\" width=\"{:.1f}\" height=\"{:.2f}\" fill=\"{}\"/>\n", x,
                             y_of(bottom_of_part + value), bar_width, height * value / most, colours[part]);
        bottom_of_part += value;
      }
      if (bar.mark > 0)
        out += fmt::format("<path d=\"M{:.1f} {:.2f}h{:.1f}\" stroke=\"black\" stroke-width=\"2\"/>\n", x - 2,
                           y_of(bar.mark), bar_width + 4);
      out += fmt::format(
          "<text x=\"{0:.1f}\" y=\"{1:.1f}\" text-anchor=\"end\" transform=\"rotate(-40 {0:.1f} "
          "{1:.1f})\">{2}</text>\n",
          x + bar_width / 2 + 4, top + height + 14, escaped(bar.label));
      x += bar_width + gap;
    }
    out += text_at((begin + x - gap) / 2, top + height + bottom - 10, "middle", group.label);
    x += group_gap;
  }
  return out + "</svg>\n";
}

}  // namespace strata::report
