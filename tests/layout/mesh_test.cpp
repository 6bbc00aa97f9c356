#include "layout/mesh.h"

#include <gtest/gtest.h>

#include <set>

namespace strata::layout {
namespace {

constexpr std::array<Axis, axes> usual = {Axis::tensor, Axis::data, Axis::pipeline};

TEST(Mesh, FillsLevelsFromTheInsideInTheGivenOrder) {
  const auto mesh = Mesh::lay({2, 4, 6}, {4, 6, 2}, usual);
  ASSERT_TRUE(mesh);
  EXPECT_EQ(mesh->widths(Axis::tensor), (Widths{2, 2, 1}));
  EXPECT_EQ(mesh->widths(Axis::data), (Widths{1, 2, 3}));
  EXPECT_EQ(mesh->widths(Axis::pipeline), (Widths{1, 1, 2}));
  const auto other = Mesh::lay({2, 4, 6}, {4, 6, 2}, {Axis::pipeline, Axis::tensor, Axis::data});
  ASSERT_TRUE(other);
  EXPECT_EQ(other->widths(Axis::pipeline), (Widths{2, 1, 1}));
  EXPECT_EQ(other->widths(Axis::tensor), (Widths{1, 4, 1}));
  EXPECT_EQ(other->widths(Axis::data), (Widths{1, 1, 6}));
  EXPECT_FALSE(Mesh::lay({2, 4, 6}, {3, 8, 2}, usual));
  EXPECT_FALSE(Mesh::lay({2, 4}, {2, 2, 1}, usual));
}

TEST(Mesh, PlacesAndRanksAreInverse) {
  for (const auto& order : {usual, std::array{Axis::pipeline, Axis::data, Axis::tensor}}) {
    const auto mesh = Mesh::lay({4, 6, 2}, {4, 6, 2}, order);
    ASSERT_TRUE(mesh);
    EXPECT_EQ(mesh->ranks(), 48);
    std::set<std::array<int64_t, 3>> seen;
    for (int64_t rank = 0; rank < 48; ++rank) {
      std::array<int64_t, 3> place{};
      int64_t back = 0;
      for (int axis = 0; axis < axes; ++axis) {
        place[static_cast<size_t>(axis)] = mesh->index(rank, static_cast<Axis>(axis));
        back = mesh->with_index(back, static_cast<Axis>(axis), place[static_cast<size_t>(axis)]);
      }
      EXPECT_EQ(back, rank);
      seen.insert(place);
      for (int axis = 0; axis < axes; ++axis) {
        const auto group = mesh->group(rank, static_cast<Axis>(axis), 0, 3);
        EXPECT_EQ(static_cast<int64_t>(group.size()), mesh->degree(static_cast<Axis>(axis)));
        for (const int64_t other : group)
          for (int same = 0; same < axes; ++same) {
            if (same == axis) continue;
            EXPECT_EQ(mesh->index(other, static_cast<Axis>(same)), mesh->index(rank, static_cast<Axis>(same)));
          }
      }
    }
    EXPECT_EQ(seen.size(), 48u);
  }
}

TEST(Mesh, OfDataRanksAloneIsThePlainTree) {
  const Widths widths = {2, 3, 2};
  const Mesh mesh(widths);
  for (int64_t rank = 0; rank < 12; ++rank) {
    EXPECT_EQ(mesh.coordinates(rank, Axis::data), coordinates(widths, rank));
    EXPECT_EQ(mesh.group(rank, Axis::data, 1, 3), group(widths, rank, 1, 3));
    EXPECT_EQ(mesh.index(rank, Axis::data), rank);
  }
  EXPECT_EQ(mesh.crossed(0, 1), 0);
  EXPECT_EQ(mesh.crossed(0, 5), 1);
  EXPECT_EQ(mesh.crossed(3, 9), 2);
  EXPECT_EQ(mesh.crossed(4, 4), -1);
}

}  // namespace
}  // namespace strata::layout
