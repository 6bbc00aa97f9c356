#pragma once
// Stacked bars in groups, as SVG: where the time of several ways of doing the same goes.

#include <string>
#include <vector>

namespace strata::report {

struct Bar {
  std::string label;
  std::vector<double> parts;  ///< of BarChart::parts, stacked from zero
  double mark = 0;            ///< a line across the bar, as what it is held against; 0: none
};

struct BarGroup {
  std::string label;
  std::vector<Bar> bars;
};

struct BarChart {
  std::string title, unit;
  std::vector<std::string> parts;  ///< their names
  std::string mark;                ///< what marks are; "": there are none
  std::vector<BarGroup> groups;
};

/// One SVG document.
std::string svg(const BarChart& chart);

}  // namespace strata::report
