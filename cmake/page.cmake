# Writes a source file that holds the report's page: cmake -DPAGE=... -DOUTPUT=... -P page.cmake
file(READ ${PAGE} text)
# A text literal may be some 64 KiB long for every compiler; pieces become one.
string(LENGTH "${text}" length)
set(pieces "")
set(begin 0)
while(begin LESS length)
  string(SUBSTRING "${text}" ${begin} 8000 piece)
  string(APPEND pieces "  R\"page~(${piece})page~\"\n")
  math(EXPR begin "${begin} + 8000")
endwhile()
file(WRITE ${OUTPUT} "#include \"report/page.h\"\n\nstd::string_view remat::report::page_template() {\n  return\n${pieces}  ;\n}\n")
