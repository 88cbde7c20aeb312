#include "cpsat/wire.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <vector>

namespace remat::cpsat {
namespace {

TEST(Wire, WritesTheBytesOfTheFormat) {
  // Field 1, varint 150: the example of the protobuf documentation.
  EXPECT_EQ(WireWriter().number(1, 150).data(), "\x08\x96\x01");
  EXPECT_EQ(WireWriter().bytes(2, "testing").data(), "\x12\x07testing");
  const std::int64_t packed[] = {3, 270, 86942};
  EXPECT_EQ(WireWriter().packed(6, packed).data(), "\x32\x06\x03\x8e\x02\x9e\xa7\x05");
}

TEST(Wire, ReadsBackWhatItWrote) {
  const std::vector<std::int64_t> values{
      0, -1, 127, 128, std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max()};
  const WireWriter inner = WireWriter().number(7, -5);
  const WireWriter message = WireWriter().packed(3, values).real(900, -0.1).message(4, inner).number(5, 1);
  WireReader reader(message.data());
  auto field = reader.next();
  ASSERT_TRUE(field);
  EXPECT_EQ(field->number, 3);
  WireReader packed(field->bytes);
  for (std::int64_t value : values) EXPECT_EQ(packed.next_packed(), value);
  EXPECT_FALSE(packed.next_packed());
  EXPECT_TRUE(packed.ok());

  field = reader.next();
  ASSERT_TRUE(field);
  EXPECT_EQ(field->number, 900);
  EXPECT_EQ(field->real, -0.1);

  field = reader.next();
  ASSERT_TRUE(field);
  EXPECT_EQ(field->number, 4);
  WireReader nested(field->bytes);
  EXPECT_EQ(nested.next()->value, -5);

  EXPECT_EQ(reader.next()->value, 1);
  EXPECT_FALSE(reader.next());
  EXPECT_TRUE(reader.ok());
}

TEST(Wire, SkipsFieldsOfAnyType) {
  const std::string fixed32 = "\x0d\x01\x02\x03\x04";
  const std::string message = fixed32 + WireWriter().number(2, 9).data();
  WireReader reader(message);
  EXPECT_EQ(reader.next()->number, 1);
  EXPECT_EQ(reader.next()->value, 9);
}

TEST(Wire, SaysWhereAMessageBreaksOff) {
  const std::string whole = WireWriter().bytes(2, "testing").real(3, 1.5).number(4, 300).data();
  // Cut between two fields the message is whole; anywhere else it is not.
  for (std::size_t size = 0; size < whole.size(); ++size) {
    WireReader reader(std::string_view(whole).substr(0, size));
    while (reader.next()) {
    }
    const bool between = size == 0 || size == 9 || size == 18;
    EXPECT_EQ(reader.ok(), between) << size;
  }
  WireReader endless("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01");
  EXPECT_FALSE(endless.next());
  EXPECT_FALSE(endless.ok());
}

}  // namespace
}  // namespace remat::cpsat
