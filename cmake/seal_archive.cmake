# cmake -DARCHIVE= -DLINKER= -DOBJCOPY= -DAR= -P seal_archive.cmake: makes one object of the archive, in which only
# the API is global. Hidden symbols are global in an archive, so that its objects find each other, and those of
# the JSON reader and of templates of the standard library would meet a program's own of another version.
function(run)
  execute_process(COMMAND ${ARGN} OUTPUT_VARIABLE output ERROR_VARIABLE output RESULT_VARIABLE failed)
  if(failed)
    message(FATAL_ERROR "${ARGN}: ${failed}\n${output}")
  endif()
endfunction()

set(object ${ARCHIVE}.o)
# Groups of sections are dissolved: one whose name is local here could be dropped for a program's group of that name.
run(${LINKER} -r --force-group-allocation --whole-archive ${ARCHIVE} -o ${object})
run(${OBJCOPY} --localize-hidden --wildcard --keep-global-symbol=remat_* --keep-global-symbol=_ZN5remat*
  --keep-global-symbol=_ZNK5remat* --keep-global-symbol=_ZT[IVS]N5remat* ${object})
file(REMOVE ${ARCHIVE}.new)
run(${AR} qcs ${ARCHIVE}.new ${object})
file(RENAME ${ARCHIVE}.new ${ARCHIVE})
file(REMOVE ${object})
