install(TARGETS ottava ottava_cli)
install(DIRECTORY include/ottava TYPE INCLUDE)
