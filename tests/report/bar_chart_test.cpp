#include "report/bar_chart.h"

#include <gtest/gtest.h>

#include <string>

namespace strata::report {
namespace {

size_t count(const std::string& text, const std::string& what) {
  size_t found = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++found;
  return found;
}

BarChart chart() {
  return {.title = "A < B & C",
          .unit = "s",
          .parts = {"compute", "wait"},
          .mark = "allowed",
          .groups = {{"first", {{"one", {1, 2}, 2.5}, {"two", {3, 0}, 0}}}, {"second", {{"three", {0.5, 0.25}, 0.5}}}}};
}

TEST(BarChart, DrawsEveryBarPartAndMarkAndEscapesText) {
  const std::string drawn = svg(chart());
  EXPECT_EQ(drawn.rfind("<svg", 0), 0u);
  EXPECT_NE(drawn.find("A &lt; B &amp; C"), std::string::npos);
  for (const char* label : {"compute", "wait", "allowed", "first", "second", ">one<", ">two<", ">three<"})
    EXPECT_NE(drawn.find(label), std::string::npos) << label;
  BarChart fewer = chart();
  fewer.groups[0].bars[0].parts[1] = 0;
  EXPECT_EQ(count(drawn, "<rect") - count(svg(fewer), "<rect"), 1u) << "a part is a rectangle";
  fewer.groups[0].bars[0].mark = 0;
  EXPECT_EQ(count(drawn, "stroke=\"black\"") - count(svg(fewer), "stroke=\"black\""), 1u) << "a mark is a line";
}

TEST(BarChart, OfNothingIsStillADocument) {
  BarChart empty = chart();
  empty.groups.clear();
  EXPECT_NE(svg(empty).find("</svg>"), std::string::npos);
  EXPECT_EQ(svg(empty).find("nan"), std::string::npos);
  empty.groups = {{"zeros", {{"zero", {0, 0}, 0}}}};
  EXPECT_EQ(svg(empty).find("nan"), std::string::npos);
  EXPECT_EQ(svg(empty).find("inf"), std::string::npos);
}

}  // namespace
}  // namespace strata::report
