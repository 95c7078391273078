"""People's commands: one module a noun or verb, made of click commands that call the admin client and print."""
