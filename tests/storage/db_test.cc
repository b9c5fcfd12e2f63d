// Asking a database: parameters by name.
extern "C" {
#include "storage/tables/db.h"
}

#include <gtest/gtest.h>

#include <string>

namespace {

class Ask : public testing::Test {
protected:
  void SetUp() override {
    ASSERT_EQ(sl_db_open("", SL_DB_WRITE, &db, &error), 0) << error.text;
  }
  void TearDown() override {
    statement = sl_statement_close(statement);
    db = sl_db_close(db);
  }

  sl_db *db = nullptr;
  sl_statement *statement = nullptr;
  sl_error error = {};
};

TEST_F(Ask, AStatementTakesOfAListWhatItHas) {
  const sl_parameter all[] = {
      SL_NUMBER(":rank", 3), SL_GIVEN(":step", -1), SL_WORD(":name", "x"), {nullptr, 0, nullptr, true}};
  ASSERT_EQ(sl_db_ask_first(db, "SELECT :name || :rank", all, &statement, &error), 1) << error.text;
  EXPECT_STREQ(sl_column_text(statement, 0), "x3");
  statement = sl_statement_close(statement);
  ASSERT_EQ(sl_db_ask_first(db, "SELECT :step IS NULL, ':other'", all, &statement, &error), 1)
      << "a text is no parameter";
  EXPECT_EQ(sl_column_int(statement, 0), 1);
}

TEST_F(Ask, AParameterThatNobodyGivesIsAnErrorAndNoNull) {
  const sl_parameter none[] = {SL_NUMBER(":ran", 3), {nullptr, 0, nullptr, true}};
  EXPECT_LT(sl_db_ask(db, "SELECT :rank", none, &statement, &error), 0);
  EXPECT_EQ(statement, nullptr);
  EXPECT_NE(std::string(error.text).find("parameter :rank is not given"), std::string::npos) << error.text;
  EXPECT_LT(sl_db_ask(db, "SELECT ?", none, &statement, &error), 0) << "one without a name can't be given";
  EXPECT_LT(sl_db_ask(db, "SELECT :rank", nullptr, &statement, &error), 0);
}

TEST_F(Ask, WhatIsToldIsDone) {
  const sl_parameter row[] = {SL_NUMBER(":a", 7), {nullptr, 0, nullptr, true}};
  ASSERT_EQ(sl_db_tell(db, "CREATE TABLE t AS SELECT :a AS a", row, &error), 0) << error.text;
  int64_t answer = 0;
  ASSERT_EQ(sl_db_int(db, "SELECT a FROM t", &answer, &error), 0) << error.text;
  EXPECT_EQ(answer, 7);
}

} // namespace
